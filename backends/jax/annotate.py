"""What a model says about its own values: names for the plan (``tag``), blocks to rematerialise (``remat``), and
GShard's three verbs in place (``replicate``, ``split``, ``shard``: section 3.2 and appendix A.3).
"""
