"""Models of tables: scikit-learn's estimators, boosted trees. All are TabularModel (tabular.py) to the rest of the house."""
