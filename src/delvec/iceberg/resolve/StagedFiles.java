package delvec;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Set;
import org.apache.iceberg.BatchScan;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.ContentFileParser;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestReader;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.CloseableIterator;

/**
 * Tells which files snapshots of a staging branch have added and removed. Results are pairs of a
 * kind and a value, separated by NUL characters; kinds are `data` and `equality` and `position`
 * (a JSON object), `removed` (a path), and others that the methods name. (Janino compiles no lambdas and no generic casts.)
 */
public class StagedFiles {
  private static final String SEPARATOR = "\0";

  /** What each of some snapshots has changed, after a pair `snapshot` with its id. */
  public String changes(Table table, String ids) {
    StringBuilder result = new StringBuilder();
    String[] wanted = ids.split(SEPARATOR);
    for (int i = 0; i < wanted.length; i++) {
      Snapshot snapshot = table.snapshot(Long.parseLong(wanted[i]));
      append(result, "snapshot", wanted[i]);
      Iterator added = snapshot.addedDataFiles(table.io()).iterator();
      while (added.hasNext()) {
        append(result, table, (ContentFile) added.next());
      }
      Iterator removed = snapshot.removedDataFiles(table.io()).iterator();
      while (removed.hasNext()) {
        append(result, "removed", ((DataFile) removed.next()).location());
      }
      Iterator deletes = snapshot.addedDeleteFiles(table.io()).iterator();
      while (deletes.hasNext()) {
        append(result, table, (ContentFile) deletes.next());
      }
    }
    return result.toString();
  }

  /**
   * The live files of a snapshot that were added by snapshots of higher sequence numbers than one,
   * and a pair `earlier` with the number of all other data files. Equality deletes that were merged
   * from earlier ones are `merged`, with their path. A file of that very sequence number is `last`:
   * only the branch that has its snapshot has it, since others give files numbers of their own.
   */
  public String live(Table table, long snapshotId, long after) throws Exception {
    StringBuilder result = new StringBuilder();
    Snapshot snapshot = table.snapshot(snapshotId);
    long earlier = 0;
    Iterator manifests = snapshot.allManifests(table.io()).iterator();
    while (manifests.hasNext()) {
      ManifestFile manifest = (ManifestFile) manifests.next();
      ManifestReader reader = open(table, manifest);
      CloseableIterator files = reader.iterator();
      try {
        while (files.hasNext()) {
          ContentFile file = (ContentFile) files.next();
          if (file.fileSequenceNumber().longValue() > after) {
            if (file.content() == FileContent.EQUALITY_DELETES
                && !file.fileSequenceNumber().equals(file.dataSequenceNumber())) {
              append(result, "merged", file.location());
            }
            append(result, table, file);
            continue;
          }
          if (file.fileSequenceNumber().longValue() == after) {
            append(result, "last", file.location());
          }
          if (file.content() == FileContent.DATA) {
            earlier++;
          }
        }
      } finally {
        files.close();
        reader.close();
      }
    }
    append(result, "earlier", String.valueOf(earlier));
    return result.toString();
  }

  /** The keys of all live files of a snapshot that it did not add itself. */
  public String earlier(Table table, long snapshotId) throws Exception {
    Set keys = keys(table, snapshotId, snapshotId);
    StringBuilder result = new StringBuilder();
    Iterator each = keys.iterator();
    while (each.hasNext()) {
      result.append((String) each.next()).append(SEPARATOR);
    }
    return result.toString();
  }

  /** Whether a snapshot has all live files of some keys. */
  public boolean present(Table table, long snapshotId, String keys) throws Exception {
    if (keys.isEmpty()) {
      return true;
    }
    return keys(table, snapshotId, -1).containsAll(Arrays.asList(keys.split(SEPARATOR)));
  }

  private static Set keys(Table table, long snapshotId, long without) throws Exception {
    Snapshot snapshot = table.snapshot(snapshotId);
    long number = without == -1 ? -1 : table.snapshot(without).sequenceNumber();
    Set found = new HashSet();
    Iterator manifests = snapshot.allManifests(table.io()).iterator();
    while (manifests.hasNext()) {
      ManifestReader reader = open(table, (ManifestFile) manifests.next());
      CloseableIterator files = reader.iterator();
      try {
        while (files.hasNext()) {
          ContentFile file = (ContentFile) files.next();
          if (file.fileSequenceNumber().longValue() != number) {
            found.add(key(file));
          }
        }
      } finally {
        files.close();
        reader.close();
      }
    }
    return found;
  }

  /** The data files, as `path`, to which one of some position deletes applies in a snapshot. */
  public String carriers(Table table, long snapshotId, String keys) throws Exception {
    Set wanted = new HashSet(Arrays.asList(keys.split(SEPARATOR)));
    StringBuilder result = new StringBuilder();
    BatchScan scan = (BatchScan) table.newBatchScan().useSnapshot(snapshotId);
    CloseableIterable tasks = scan.planFiles();
    CloseableIterator iterator = tasks.iterator();
    try {
      while (iterator.hasNext()) {
        FileScanTask task = (FileScanTask) iterator.next();
        Iterator deletes = task.deletes().iterator();
        while (deletes.hasNext()) {
          if (wanted.contains(key((DeleteFile) deletes.next()))) {
            append(result, "path", ((DataFile) task.file()).location());
            break;
          }
        }
      }
    } finally {
      iterator.close();
      tasks.close();
    }
    return result.toString();
  }

  /**
   * What is wrong or left in the deletes of a snapshot: each equality delete as `equality` with its
   * path, each data file with two vectors as `twice`.
   */
  public String deletes(Table table, long snapshotId) throws Exception {
    StringBuilder result = new StringBuilder();
    Set vectors = new HashSet();
    Iterator manifests = table.snapshot(snapshotId).deleteManifests(table.io()).iterator();
    while (manifests.hasNext()) {
      ManifestReader reader = open(table, (ManifestFile) manifests.next());
      CloseableIterator files = reader.iterator();
      try {
        while (files.hasNext()) {
          DeleteFile file = (DeleteFile) files.next();
          if (file.content() == FileContent.EQUALITY_DELETES) {
            append(result, "equality", file.location());
          } else if (file.format() == FileFormat.PUFFIN
              && !vectors.add(file.referencedDataFile())) {
            append(result, "twice", file.referencedDataFile());
          }
        }
      } finally {
        files.close();
        reader.close();
      }
    }
    return result.toString();
  }

  private static ManifestReader open(Table table, ManifestFile manifest) {
    return manifest.content() == org.apache.iceberg.ManifestContent.DATA
        ? (ManifestReader) ManifestFiles.read(manifest, table.io(), table.specs())
        : (ManifestReader) ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs());
  }

  private static String key(ContentFile file) {
    if (file instanceof DeleteFile && ((DeleteFile) file).contentOffset() != null) {
      return file.location() + "@" + ((DeleteFile) file).contentOffset();
    }
    return file.location();
  }

  private static void append(StringBuilder to, Table table, ContentFile file) {
    PartitionSpec spec = (PartitionSpec) table.specs().get(Integer.valueOf(file.specId()));
    String kind = "data";
    if (file.content() == FileContent.EQUALITY_DELETES) {
      kind = "equality";
    } else if (file.content() == FileContent.POSITION_DELETES) {
      kind = "position";
    }
    append(to, kind, ContentFileParser.toJson(file, spec));
  }

  private static void append(StringBuilder to, String kind, String value) {
    to.append(kind).append(SEPARATOR).append(value).append(SEPARATOR);
  }
}
