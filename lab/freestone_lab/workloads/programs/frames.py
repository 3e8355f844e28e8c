"""pandas: tables grouped, merged, pivoted and sorted, text split, CSV written and read."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd

draw = np.random.default_rng(7)
rows = 60000
table = pd.DataFrame(
    {
        "key": draw.integers(0, 900, rows),
        "word": [f"w{number} x{number % 37}" for number in draw.integers(0, 5000, rows)],
        "x": np.arange(rows) * 7919 % 1009,
    }
)
table["y"] = table["x"] * 3 + np.arange(rows) % 17
sums = table.groupby("key").agg({"x": "sum", "y": "mean", "word": "nunique"})
joined = table.merge(sums, left_on="key", right_index=True, suffixes=("", "_sum")).sort_values(["y", "word"])
wide = joined.pivot_table(index="key", columns=joined["x"] % 7, values="y", aggfunc="sum", fill_value=0)
parts = table["word"].str.split(" ", expand=True)
text = joined.head(20000).to_csv(index=False)
again = pd.read_csv(io.StringIO(text))
for _ in range(5):
    table = table.assign(z=table["x"].rolling(9, min_periods=1).mean()).sample(frac=1.0, random_state=11)
print("rows", len(again), "wide", wide.shape, "words", parts[0].nunique(), "sum", int(joined["x_sum"].sum()))
