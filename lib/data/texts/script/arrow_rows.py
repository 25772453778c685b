"""Reads rows of Parquet and Arrow files with pyarrow."""

from faults import Fault, package

BATCH = 1000


def library():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise package(error, "Parquet and Arrow files are read with it") from None
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # returns freed memory to the system
    pyarrow.set_io_thread_count(1)
    return pyarrow


class Parquet:
    def __init__(self, file, columns):
        self.file, self.pyarrow = file, library()
        self.parquet = opened(self.pyarrow, file, lambda: self.pyarrow.parquet.ParquetFile(
            file, buffer_size=1 << 20, pre_buffer=False))
        self.columns = chosen(file, self.parquet.schema_arrow.names, columns)

    def count(self):
        return self.parquet.metadata.num_rows

    def read(self, begin, end):
        """Yields the rows [begin, end) in batches, as (number of the first row, rows)."""
        groups, first, at = [], None, 0
        for group in range(self.parquet.num_row_groups):
            rows = self.parquet.metadata.row_group(group).num_rows
            if at < end and at + rows > begin:
                groups.append(group)
                first = at if first is None else first
            at += rows
        if not groups:
            return
        batches = self.parquet.iter_batches(BATCH, row_groups=groups, columns=self.columns, use_threads=False)
        yield from cut(self.pyarrow, self.file, batches, first, begin, end)


class Arrow:
    """Opens the stream format that `datasets` writes, or the file format with a footer."""

    def __init__(self, file, columns):
        self.file, self.pyarrow, self.asked = file, library(), columns
        with open(file, "rb") as stream:
            self.footer = stream.read(6) == b"ARROW1"
        self.rows = None

    def batches(self):
        ipc = self.pyarrow.ipc
        with self.pyarrow.OSFile(self.file) as stream:
            opener = ipc.open_file if self.footer else ipc.open_stream
            reader = opened(self.pyarrow, self.file, lambda: opener(stream))
            columns = chosen(self.file, reader.schema.names, self.asked)
            parts = (reader.get_batch(i) for i in range(reader.num_record_batches)) if self.footer else reader
            for part in parts:
                yield part if columns is None else part.select(columns)

    def count(self):
        if self.rows is None:
            self.rows = opened(self.pyarrow, self.file, lambda: sum(batch.num_rows for batch in self.batches()))
        return self.rows

    def read(self, begin, end):
        yield from cut(self.pyarrow, self.file, self.batches(), 0, begin, end)


def opened(pyarrow, file, function):
    try:
        return function()
    except (pyarrow.ArrowException, OSError) as error:
        raise Fault(f"cannot be read: {error}", file, "copy the file again; it may be incomplete") from None


def chosen(file, names, columns):
    """Returns the existing columns among `columns`; None: all."""
    found = None if columns is None else [name for name in columns if name in names]
    if found == []:
        raise Fault(f"has none of the columns {', '.join(columns)}", file, f"its columns: {', '.join(names)}")
    return found


def cut(pyarrow, file, batches, at, begin, end):
    """Yields the rows [begin, end) of batches that start at row `at`, at most BATCH at a time."""
    batches = iter(batches)
    while at < end:
        batch = opened(pyarrow, file, lambda: next(batches, None))
        if batch is None:
            return
        for start in range(max(0, begin - at), min(batch.num_rows, end - at), BATCH):
            rows = min(BATCH, batch.num_rows - start, end - at - start)
            yield at + start, batch.slice(start, rows).to_pylist()
        at += batch.num_rows
