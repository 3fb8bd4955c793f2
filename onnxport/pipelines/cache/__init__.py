"""The cache of pipelines: products by the digest of all that they follow from (graph/keys.py).

An entry is a folder that appears by one rename and is never written again, so that runs that share the cache, on one
machine or several, need no lock between them. entries.py is an entry's form, store.py what a run does with entries,
workspace.py where a run works undisturbed, and files.py the little that is done to files in all three.
"""

from onnxport.pipelines.cache.entries import Entry
from onnxport.pipelines.cache.store import Cache, folder_beside, home_of, timings_beside

__all__ = ["Cache", "Entry", "folder_beside", "home_of", "timings_beside"]
