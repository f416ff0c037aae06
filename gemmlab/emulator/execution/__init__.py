"""A program at work on a chunk of thread blocks: the machine, what runs next, where threads stand
in the grid, and when a launch counts as one that never ends or stands still.
"""
