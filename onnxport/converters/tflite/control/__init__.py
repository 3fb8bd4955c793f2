"""If and loops: functions of the module, what they carry, recurrent steps, and what the exporter gets wrong of them."""
