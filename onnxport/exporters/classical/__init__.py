"""Models of tables: scikit-learn's estimators and boosted trees, each a TabularModel (tabular.py)."""
