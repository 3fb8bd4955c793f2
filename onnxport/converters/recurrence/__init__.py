"""RNN, GRU and LSTM, whatever the target."""
