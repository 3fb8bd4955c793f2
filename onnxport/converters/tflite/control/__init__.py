"""If and loops: functions, carried tensors, recurrent steps, and repairs of the exporter's errors."""
