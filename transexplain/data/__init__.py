"""Items from files and folders: sources, the Parquet snapshot, fingerprints, shards.

A dataset is read once, at plan time, into a snapshot that opens at any row
(`snapshot.prepare`); shards are row ranges of it (`make_shards`), and a worker reads one of them
without touching the rows before (`read_shard`). A new kind of source or file is
one module and one line in a table below.
"""

from transexplain.registry import Registry

#: what stands before the colon of a source; `files` is a source without a prefix
SOURCES = Registry(
    "data source",
    {
        "files": "transexplain.data.table_source:FileSource",
        "imagefolder": "transexplain.data.image_files:ImageFolderSource",
        "eraser": "transexplain.data.eraser:EraserSource",
        "graphs": "transexplain.extras.graphs.graph_files:GraphSource",
    },
)

#: readers of a file that holds one item, by modality
ITEM_FILES = Registry(
    "file of an item", {"nodes": "transexplain.extras.graphs.graph_files:read_graph_file"}
)
#: what turns stored bytes into the content of an item, by modality
CONTENTS = Registry("content", {"nodes": "transexplain.extras.graphs.graph_rows:unpack"})

#: file formats by suffix, `.gz` taken off
FORMATS = Registry(
    "file format",
    {
        "csv": "transexplain.data.file_formats:open_csv",
        "tsv": "transexplain.data.file_formats:open_tsv",
        "jsonl": "transexplain.data.file_formats:open_jsonl",
        "parquet": "transexplain.data.parquet_files:open_parquet",
        "xlsx": "transexplain.data.workbooks:open_workbook",
        "tar": "transexplain.data.tar_files:open_tar",
    },
)
