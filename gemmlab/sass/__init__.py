"""Machine code beside PTX: what a launch executed of it, and where it does something else."""

#from gemmlab.sass.report import MachineCode, analyse

#__all__ = ["MachineCode", "analyse"]
