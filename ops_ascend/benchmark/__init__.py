"""Time, memory and accuracy of the scan operators beside what people use: `python -m ops_ascend.benchmark`.

cases.py names the shapes, candidates.py what runs on them (ssd_peers.py, selective_peers.py and
installed_peers.py are what the operators are compared with), accuracy.py, timing.py and memory.py measure one
case, roofline.py the machine and arithmetic.py what a kernel has to do on it; verdicts.py makes ratios of it,
report.py and records.py write them down, and command_line.py is the program.
"""
