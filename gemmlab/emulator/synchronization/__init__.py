"""Synchronization and communication of threads: block barriers, mbarriers, cluster barriers, warp
collectives, and the deadlock report.
"""
