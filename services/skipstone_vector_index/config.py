"""Settings of the vector index."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from skipstone_shared.config import Port, ServiceSettings
from skipstone_shared.page_check import PageCheck
from skipstone_shared.ports import DEFAULT_PORTS


class VectorIndexSettings(ServiceSettings):
    """Finds entries whose vector is close to a query, in a directory or in a vector engine."""

    service_name = "vector_index"

    port: Port = DEFAULT_PORTS["vector_index"]
    """TCP port to listen on; 0 takes any free one and logs it."""

    engine: Literal["hnswlib", "pgvector", "milvus", "qdrant"] = "hnswlib"
    """Where entries are: hnswlib = in data_dir; the others = in an engine at url, which several
    processes may share. Those heed metric, collection, engine_timeout_s, exact_search_limit and
    hnsw_*; what else stands below is of hnswlib alone."""

    url: SecretStr | None = None
    """Where the engine is: postgresql://user:password@host:5432/database for pgvector,
    http://user:password@host:19530/database for milvus, http://:api-key@host:6333 for qdrant (https
    for TLS). A password is taken by file or environment, since everybody on the machine can read
    the flags of a process."""

    collection: str = Field(default="skipstone", pattern=r"^[a-z][a-z0-9_]{0,31}$")
    """First part of the names of the engine's tables or collections; one per deployment."""

    engine_timeout_s: float = Field(default=5.0, gt=0.0, le=600.0)
    """Seconds that the engine may take for one call."""

    data_dir: Path = Path("data/vector_index")
    """Directory of the index; created where it is missing, used by one process at a time."""

    migrate_to: Path | None = None
    """Settings file of the engine to move to, whose table vector_index says where it is. What is
    written goes there too, and `skipstone index migrate` copies the rest, while the engine above
    serves on; none: no move."""

    max_disk_bytes: int = Field(default=16 << 30, ge=1 << 20)
    """Bytes that entries may take on disk; a full index refuses writes. The file grows as needed
    and may be a quarter larger."""

    fsync: bool = True
    """Whether a write reaches the disk before it is acknowledged. Without, it survives the end of
    the process but maybe not of the machine."""

    page_check: PageCheck = "always"
    """When the pages of the record file are looked at before it is opened: always = at every start;
    after_crash = unless the last process has closed it in order and nobody has touched it since."""

    metric: Literal["cosine", "inner_product"] = "cosine"
    """Similarity of a vector and a query. The cosine ignores their norms; the inner product is for
    models whose norms mean something. A directory with entries keeps the one it has."""

    vector_dtype: Literal["float32", "float16"] = "float32"
    """Type of new vectors on disk. float16 takes half the bytes; a cosine is off by up to 1e-4."""

    exact_search_limit: int = Field(default=4096, ge=0)
    """Live entries up to which a partition is searched exactly; larger ones get an HNSW graph."""

    hnsw_m: int = Field(default=16, ge=2, le=128)
    """Links per vector and layer of a graph: more is better recall and more memory."""

    hnsw_ef_construction: int = Field(default=200, ge=8, le=4096)
    """Candidates looked at when a vector is added: more is better recall and slower adds."""

    hnsw_ef_search: int = Field(default=384, ge=8, le=4096)
    """Candidates looked at in a search of a graph: more is better recall and slower searches."""

    rebuild_tombstone_share: float = Field(default=0.3, gt=0.0, lt=1.0)
    """Share of removed vectors in a graph above which it is built anew in the background."""

    save_graphs: bool = True
    """Whether copies of graphs are kept in data_dir, beside max_disk_bytes, so that a start need
    not build them: about 1.7 KB per vector of 384 elements."""

    graph_save_share: float = Field(default=0.05, gt=0.0, le=1.0)
    """Share of a graph's vectors that change until it is saved again, in the background."""

    def data_folders(self) -> tuple[Path, ...]:
        """The folder of the record log and the graphs; engines outside keep nothing here."""
        return (self.data_dir,) if self.engine == "hnswlib" else ()

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if self.engine == "hnswlib":
            if self.url is not None:
                raise ValueError("url is for other engines than hnswlib; set engine too")
            return self
        if self.url is None:
            raise ValueError(f"engine {self.engine} needs url")
        if self.vector_dtype != "float32":
            raise ValueError(f"engine {self.engine} keeps vectors as float32; unset vector_dtype")
        return self
