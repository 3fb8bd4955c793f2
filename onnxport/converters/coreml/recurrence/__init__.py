"""RNN, GRU and LSTM where MIL has no operator for them: one step as formulas, and the steps over time."""
