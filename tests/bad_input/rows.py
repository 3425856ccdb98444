"""Bad input: data that `sweeps run` refuses before Ray starts."""

from __future__ import annotations

import gzip

from tests.bad_input import ROWS, Case, data, file, parquet, steps

TABLE: dict[str, tuple[Case, ...]] = {
    "Data: files that cannot be found": (
        data(
            "no such file",
            "{train: row.csv, label: y, valid: 0.25}",
            "2:15: data.train: `row.csv` does not exist; did you mean `rows.csv`?",
        ),
        data(
            "a missing file that resembles no other",
            "{train: data/2019.parquet, label: y, valid: 0.25}",
            "2:15: data.train: `data/2019.parquet` does not exist; there is no folder `data`",
        ),
        data(
            "a glob without a match",
            '{train: "*.parquet", label: y, valid: 0.25}',
            "2:15: data.train: no file matches `*.parquet`",
        ),
        data(
            "a folder without data",
            "{train: folder, label: y, valid: 0.25}",
            "2:15: data.train: folder `folder` has no data file; valid suffixes: .csv, .tsv, "
            ".jsonl, .ndjson (each also with .gz), .parquet, .pq",
        ),
        data(
            "a glob of files with another suffix",
            '{train: "*.py", label: y, valid: 0.25}',
            "2:15: data.train: `*.py` cannot be read: unsupported suffix; valid: .csv, .tsv, "
            ".jsonl, .ndjson (each also with .gz), .parquet, .pq",
        ),
        data(
            "a pipe",
            "{train: pipe, label: y, valid: 0.25}",
            "2:15: data.train: `pipe` is not a regular file",
        ),
        data(
            "unknown scheme",
            '{train: "http://host/rows.csv", label: y, valid: 0.25}',
            "2:15: data.train: `http://host/rows.csv`: unknown scheme `http`; valid: file, gs, "
            "s3, hdfs, abfs, abfss",
        ),
        data(
            "valid is missing",
            "{train: rows.csv, label: y, valid: valdi.csv}",
            "2:42: data.valid: `valdi.csv` does not exist; did you mean `valid.csv`?",
            files={"valid.csv": ROWS},
        ),
        data(
            "train and test are missing",
            "{train: a.csv, label: y, valid: 0.25, test: b.csv}",
            "2:15: data.train: `a.csv` does not exist; did you mean `rows.csv`?",
            "2:51: data.test: `b.csv` does not exist; did you mean `rows.csv`?",
        ),
    ),
    "Data: variants": (
        data(
            "a variant that is missing",
            "{train: {grid: [rows.csv, row.csv]}, label: y, valid: 0.25}",
            "2:33: data.train.grid.1: `row.csv` does not exist; did you mean `rows.csv`?",
        ),
        data(
            "variants with other classes",
            "{train: {grid: [rows.csv, other.csv]}, label: y, valid: 0.25}",
            "2:33: data.train.grid.1: the label of `other.csv` is multiclass with the classes "
            "'maybe', 'no', 'yes', but the label "
            "of `rows.csv` is binary with the classes 'no', 'yes'; all variants need the same "
            "task and classes",
            files={"other.csv": ROWS.replace("7,b,yes", "7,b,maybe")},
        ),
        data(
            "a feature subset with an unknown column",
            "{train: rows.csv, label: y, valid: 0.25, drop: {choice: [[], [agee]]}}",
            "2:68: data.drop.choice.1: `rows.csv` has no column `agee`; did you mean `age`?",
        ),
        steps(
            "a step for a column that a variant drops",
            "{preprocessor: {OneHotEncoder: {columns: plan}}}",
            "5:49: preprocessor.OneHotEncoder.columns: `plan` is not a feature, because "
            "data.drop, data.weight or a split removes it",
            rows="{train: rows.csv, label: y, valid: 0.25, drop: {choice: [[], [plan]]}}",
        ),
    ),
    "Data: files that cannot be read": (
        file(
            "an empty file",
            "bad.csv",
            "",
            "2:15: data.train: `bad.csv` cannot be read: it is empty",
        ),
        file(
            "a header without rows",
            "bad.csv",
            "age,plan,y\n",
            "2:15: data.train: `bad.csv` has no rows",
        ),
        file(
            "blank lines",
            "bad.csv",
            "\n\n\n",
            "2:15: data.train: `bad.csv` cannot be read: it has only blank lines",
        ),
        file(
            "a Git LFS pointer",
            "bad.tsv.gz",
            "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 497131\n",
            "2:15: data.train: `bad.tsv.gz` cannot be read: it is not a gzip file, but a Git LFS "
            "pointer (run `git lfs pull`); it begins with `version "
            "https://git-lfs.github.com/spec/`",
        ),
        file(
            "text with the suffix of gzip",
            "bad.csv.gz",
            ROWS,
            "2:15: data.train: `bad.csv.gz` cannot be read: it is not a gzip file; it begins with "
            "`age,plan,y`",
        ),
        file(
            "incomplete gzip",
            "bad.csv.gz",
            lambda: gzip.compress((ROWS * 400).encode())[:-40],
            "2:15: data.train: `bad.csv.gz` cannot be read: Truncated compressed stream",
        ),
        file(
            "CSV with the suffix of Parquet",
            "bad.parquet",
            ROWS,
            "2:15: data.train: `bad.parquet` cannot be read: it is not a Parquet file; it begins "
            "with `age,plan,y`",
        ),
        file(
            "incomplete Parquet",
            "bad.parquet",
            b"PAR1\x15\x04\x15",
            "2:15: data.train: `bad.parquet` cannot be read: Parquet file size is 7 bytes, "
            "smaller than the minimum file footer (8 bytes)",
        ),
        file(
            "Parquet with the suffix of CSV",
            "bad.csv",
            parquet,
            "2:15: data.train: `bad.csv` cannot be read: it is not text, but a Parquet file; it "
            "begins with `PAR1`",
        ),
        file(
            "a workbook with the suffix of CSV",
            "bad.csv",
            b"PK\x03\x04\x14\x00\x06\x00",
            "2:15: data.train: `bad.csv` cannot be read: it is not text, but a workbook or a zip "
            "archive; it begins with `PK`",
        ),
        file(
            "UTF-16",
            "bad.csv",
            ROWS.encode("utf-16"),
            "2:15: data.train: `bad.csv` cannot be read: it is not UTF-8 text; it is probably "
            "utf-16: add `data.read: {encoding: utf-16}`, or convert it with `iconv -f utf-16 -t "
            "utf-8`",
        ),
        file(
            "latin-1",
            "bad.csv",
            ROWS.replace("plan", "größe").encode("latin-1"),
            "2:15: data.train: `bad.csv` cannot be read: it is not UTF-8 text (byte 0xf6, line "
            "1); it is probably cp1252: add `data.read: {encoding: cp1252}`, or convert it with "
            "`iconv -f cp1252 -t utf-8`",
        ),
        file(
            "binary data with the suffix of CSV",
            "bad.csv",
            b"age,plan,y\n\x00\x01\x02",
            "2:15: data.train: `bad.csv` cannot be read: line 2 has a NUL byte: it is no text, or "
            "remove the byte with `tr -d '\\0'`",
        ),
        file(
            "gzip with the suffix of CSV",
            "bad.csv",
            lambda: gzip.compress(ROWS.encode()),
            "2:15: data.train: `bad.csv` cannot be read: it is not text, but a gzip file",
        ),
        file(
            "a file without a suffix",
            "rows",
            ROWS,
            "2:15: data.train: `rows` cannot be read: unsupported suffix; valid: .csv, .tsv, "
            ".jsonl, .ndjson (each also with .gz), .parquet, .pq",
        ),
        file(
            "an unsupported suffix",
            "bad.xlsx",
            ROWS,
            "2:15: data.train: `bad.xlsx` cannot be read: unsupported suffix; valid: .csv, .tsv, "
            ".jsonl, .ndjson (each also with .gz), .parquet, .pq; read it with a loader, three "
            "lines in `my_loader.py`: `import pandas`, `def rows():`, ` return "
            'pandas.read_excel("bad.xlsx")`; then write `data.train: "my_loader:rows"`',
        ),
        file(
            "a row that is too long",
            "bad.csv",
            ROWS + "9,a,no,more\n",
            "2:15: data.train: `bad.csv` cannot be read: line 10 has 4 values, but there are 3 "
            "names; correct this line, or put quotes around a value that contains a separator or "
            "a line feed",
        ),
        file(
            "no header",
            "bad.csv",
            ROWS.partition("\n")[2],
            "2:15: data.train: `bad.csv` cannot be read: line 1 looks like values, not like "
            "names: `0,a,no`; if this line is no "
            "header, name the columns: add `data.read: {names: [c1, c2, c3]}`",
        ),
        file(
            "titles above the header",
            "bad.csv",
            "Sales of spring\n\n" + ROWS,
            "2:15: data.train: `bad.csv` cannot be read: the table seems to begin in line 3; add "
            "`data.read: {skip_lines: 2}`",
        ),
        file(
            "semicolons and decimal commas",
            "bad.csv",
            "age;y\n1,5;no\n2,5;yes\n3;no\n",
            '2:15: data.train: `bad.csv` cannot be read: the values seem to be separated by ";"; '
            'add `data.read: {separator: ";", decimal: ","}`',
        ),
        file(
            "two files in one",
            "bad.csv",
            ROWS + ROWS,
            "2:15: data.train: `bad.csv` cannot be read: 1 row repeats the header (first: line "
            "10); leave them out with "
            "`awk 'NR == 1 {h = $0} NR == 1 || $0 != h' bad.csv > clean.csv`",
        ),
        file(
            "a page under the name of a table",
            "bad.csv",
            "<!DOCTYPE html>\n<html></html>\n",
            "2:15: data.train: `bad.csv` cannot be read: it is not text, but a page of HTML; it "
            "begins with `<!DOCTYPE html>`",
        ),
        file(
            "a line that is no JSON",
            "bad.jsonl",
            '{"age": 1, "plan": "a", "y": 0}\n{"age": 1,\n',
            '2:15: data.train: `bad.jsonl` cannot be read: line 2 is not a JSON object: `{"age": '
            "1,`",
        ),
        file(
            "a duplicate column",
            "bad.csv",
            "age,age,y\n1,2,no\n",
            "2:15: data.train: `bad.csv` cannot be read: two columns are named `age`; rename one "
            "of them",
        ),
        data(
            "a folder with two kinds of files",
            "{train: folder, label: y, valid: 0.25}",
            "2:15: data.train: `folder` mixes .csv and .parquet files; use one kind",
            files={"folder/a.csv": ROWS, "folder/b.parquet": parquet},
        ),
        data(
            "files with different columns",
            '{train: "?.csv", label: y, valid: 0.25}',
            "2:15: data.train: `b.csv` lacks `plan` and also has `paln`, compared with `a.csv`; "
            "all "
            "files of a source need the same columns",
            files={"a.csv": ROWS, "b.csv": ROWS.replace("plan", "paln")},
        ),
    ),
    "Data: columns": (
        data(
            "an unknown label",
            "{train: rows.csv, label: Y_, valid: 0.25}",
            "2:32: data.label: `rows.csv` has no column `Y_`; valid: age, plan, y",
        ),
        data(
            "a label in the wrong case",
            "{train: rows.csv, label: Y, valid: 0.25}",
            "2:32: data.label: `rows.csv` has no column `Y`; did you mean `y`?",
        ),
        data(
            "an unknown label in a data set of scikit-learn",
            '{train: "sklearn:iris", label: species, valid: 0.25}',
            "2:38: data.label: `sklearn:iris` has no column `species`; valid: sepal length (cm), "
            "sepal width "
            "(cm), petal length (cm), petal width (cm), target",
        ),
        data(
            "an unknown label in Parquet",
            "{train: rows.parquet, label: z, valid: 0.25}",
            "2:36: data.label: `rows.parquet` has no column `z`; valid: age, plan, y",
            files={"rows.parquet": parquet},
        ),
        file(
            "a label with one class",
            "bad.csv",
            ROWS.replace("yes", "no"),
            "2:31: data.label: `y` has only one class, 'no'; at least two are needed",
        ),
        file(
            "a label with missing values",
            "bad.csv",
            ROWS.replace("yes", ""),
            "2:31: data.label: `y` has 4 missing values in data.train; "
            "remove the rows without a label from the data, or set `data.drop_missing_label: "
            "true` so that sweeps skips these rows",
        ),
        file(
            "a label with a word that may be a class",
            "bad.csv",
            ROWS.replace("yes", "None"),
            "2:31: data.label: `y` has 'None' in 4 of 8 rows of data.train; if this is a class, "
            "write `data.missing: {y: []}`; "
            "if it is a missing label, write `data.drop_missing_label: true`",
        ),
        data(
            "a text label for a regression",
            "{train: rows.csv, label: y, valid: 0.25, task: regression}",
            "2:54: data.task: regression needs numbers, but `y` holds text, such as 'no'",
        ),
        data(
            "three classes for a binary task",
            "{train: three.csv, label: y, valid: 0.25, task: binary}",
            "2:55: data.task: binary needs 2 classes, but `y` has 3",
            files={"three.csv": "x,y\n1,a\n2,b\n3,c\n4,a\n"},
        ),
        data(
            "a value that does not fit its rule",
            "{train: rows.csv, label: y, valid: 0.25, parse: {plan: number}}",
            "2:62: data.parse.plan: column `plan` of data.train holds 'a' in row 1, but must fit "
            "the rule number, such as $1,234.50",
        ),
        data(
            "an unknown column to parse",
            "{train: rows.csv, label: y, valid: 0.25, parse: {aeg: number}}",
            "2:61: data.parse.aeg: `rows.csv` has no column `aeg`; did you mean `age`?",
        ),
        data(
            "an unknown column to drop",
            "{train: rows.csv, label: y, valid: 0.25, drop: [aeg]}",
            "2:54: data.drop: `rows.csv` has no column `aeg`; did you mean `age`?",
        ),
        data(
            "an unknown column of weights",
            "{train: rows.csv, label: y, valid: 0.25, weight: aeg}",
            "2:56: data.weight: `rows.csv` has no column `aeg`; did you mean `age`?",
        ),
        data(
            "a column of weights with text",
            "{train: rows.csv, label: y, valid: 0.25, weight: plan}",
            "2:56: data.weight: `plan` holds text in data.train, such as 'a'; a weight must be a "
            "finite number of at least 0; "
            "correct the column, or name another one",
        ),
        data(
            "a negative weight",
            "{train: rows.csv, label: y, valid: 0.25, weight: age}",
            "2:56: data.weight: `age` is -1 in row 2 of data.train; a weight must be a finite "
            "number of at least 0; "
            "correct the column, or name another one",
            files={"rows.csv": ROWS.replace("1,b", "-1,b")},
        ),
        data(
            "a missing weight",
            "{train: rows.csv, label: y, valid: 0.25, weight: age}",
            "2:56: data.weight: `age` has 1 missing value in data.train; a weight must be a "
            "finite number of at least 0; "
            "correct the column, or name another one",
            files={"rows.csv": ROWS.replace("1,b", ",b")},
        ),
        data(
            "balanced classes in a regression",
            "{train: rows.csv, label: z, valid: 0.25, class_weight: balanced}",
            "2:62: data.class_weight: is only for a classification, but this label is for a "
            "regression; leave this key out",
            files={"rows.csv": "age,z\n" + "".join(f"{i},{i / 2}\n" for i in range(8))},
        ),
        data(
            "labels of numbers and of classes",
            "{train: rows.csv, label: [z, y], valid: 0.25}",
            "2:32: data.label: `y` has classes, but `z` has numbers; several label columns must "
            "all have numbers, or all have only 0 and 1 "
            "(or false and true); to predict all of them as numbers, set `data.task: regression`",
            files={"rows.csv": "age,z,y\n" + "".join(f"{i},{i / 2},{i % 2}\n" for i in range(8))},
        ),
        data(
            "an unknown column to split by",
            "{train: rows.csv, label: y, valid: {time: day, last: 0.2}}",
            "2:35: data.valid: `rows.csv` has no column `day`; valid: age, plan, y",
        ),
        data(
            "a split without rows",
            "{train: rows.csv, label: y, valid: {column: plan, value: valid}}",
            "2:35: data.valid: no row has 'valid' in column `plan`, which holds `a`, `b`",
        ),
        data(
            "valid with other columns",
            "{train: rows.csv, label: y, valid: valid.csv}",
            "2:42: data.valid: the columns differ from the columns of data.train: missing `plan`; "
            "extra `paln`",
            files={"valid.csv": ROWS.replace("plan", "paln")},
        ),
        data(
            "valid with another type of label",
            "{train: rows.csv, label: y, valid: valid.csv}",
            "2:42: data.valid: column `y` holds int64 in data.valid, but text in data.train",
            files={"valid.csv": "age,plan,y\n1,a,0\n2,b,1\n"},
        ),
        steps(
            "texts that no step encodes",
            "{params: {eta: 0.1}}",
            "5:1: space.preprocessor: `plan` is text, which xgboost cannot read, and no step "
            "encodes it; "
            "add an encoder, such as `preprocessor: [OneHotEncoder]`, or add it to data.drop",
        ),
        data(
            "more folds than a class has rows",
            "{train: rows.csv, label: y, valid: {folds: 5}}",
            "2:35: data.valid: 5 folds need at least 5 rows of each class in train, but class "
            "`no` of `y` has 4 in train; use fewer folds",
        ),
        data(
            "no column beside the label",
            "{train: one.csv, label: y, valid: 0.25}",
            "2:31: data.label: `one.csv` has no other columns than the label and those of "
            "data.drop, weights and splits; "
            "a model needs a column to read",
            files={"one.csv": "y\n" + "no\nyes\n" * 9},
        ),
        steps(
            "a step for an unknown column",
            "{preprocessor: {StandardScaler: {columns: aeg}}}",
            "5:50: preprocessor.StandardScaler.columns: no column `aeg` in `rows.csv`; did you "
            "mean `age`?",
        ),
        steps(
            "a step for an unknown column, in an option",
            "{preprocessor: {grid: [none, {StandardScaler: {columns: [age, height]}}]}}",
            "5:70: preprocessor.grid.1.StandardScaler.columns.1: no column `height` in "
            "`rows.csv`; valid: age, plan",
        ),
        steps(
            "a pattern without a match",
            '{preprocessor: {StandardScaler: {columns: "pixel_*"}}}',
            "5:50: preprocessor.StandardScaler.columns: no column in `rows.csv` matches "
            "`pixel_*`; valid: age, plan",
        ),
        steps(
            "a step for the label",
            "{preprocessor: {OneHotEncoder: {columns: [plan, y]}}}",
            "5:56: preprocessor.OneHotEncoder.columns.1: `y` is the label, which no step may "
            "change",
        ),
        steps(
            "a step for a dropped column",
            "{preprocessor: {StandardScaler: {columns: age}}}",
            "5:50: preprocessor.StandardScaler.columns: `age` is not a feature, because "
            "data.drop, data.weight or a split removes it",
            rows="{train: rows.csv, label: y, valid: 0.25, drop: [age]}",
        ),
        steps(
            "several problems at once",
            "{preprocessor: {StandardScaler: {columns: heigth}}}",
            "2:32: data.label: `rows.csv` has no column `Y`; did you mean `y`?",
            "2:42: data.group: `rows.csv` has no column `patient`; valid: age, plan, y",
            "2:69: data.drop: `rows.csv` has no column `id`; valid: age, plan, y",
            "5:50: preprocessor.StandardScaler.columns: no column `heigth` in `rows.csv`; valid: "
            "age, plan, y",
            rows="{train: rows.csv, label: Y, group: patient, valid: 0.2, drop: [id]}",
        ),
    ),
}
