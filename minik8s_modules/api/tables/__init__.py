"""The tables that ``kubectl get`` prints.

``printers`` picks the columns of a kind; one module for each family of kinds fills the row from ``cells``.
"""
