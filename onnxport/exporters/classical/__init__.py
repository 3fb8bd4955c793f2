"""Models of tables, scikit-learn's estimators and boosted trees: a TabularModel (tabular.py) each."""
