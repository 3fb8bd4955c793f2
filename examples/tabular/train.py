"""Trains a classifier of tumours on scikit-learn's breast cancer table: `python train.py`.

Writes tumours.json, and patients.csv with the quarter of the table that training has not seen.
"""

from pathlib import Path

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from xgboost import XGBClassifier

HERE = Path(__file__).parent

table, benign = load_breast_cancer(return_X_y=True, as_frame=True)
seen, unseen, known, wanted = train_test_split(table, benign, random_state=0)
model = XGBClassifier(n_estimators=40, max_depth=4, random_state=0, n_jobs=1).fit(seen, known)
model.save_model(HERE / "tumours.json")
unseen.to_csv(HERE / "patients.csv", index=False)
print(f"right about {model.score(unseen, wanted):.1%} of {len(unseen)} patients")
