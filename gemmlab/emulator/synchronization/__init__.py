"""How threads wait for each other and exchange values: barriers of a block, mbarriers, clusters and
their barrier, the collectives of a warp; and the report on threads of which none can go on.
"""
