package brooklet;

/**
 * Numbers about a store. Sizes are bytes.
 *
 * @param format the format version of the store
 * @param epoch how often the store was opened for writing
 * @param size the size of the volume
 * @param heapFree the free space in the heap
 * @param ringSize the size that the ring may grow to
 * @param ringInUse the size of the ring now
 * @param memtableLogs how many logs have entries in memory that are not in runs yet
 * @param memtableBytes the memory of these entries
 * @param runs the number of runs
 * @param runBytes the size of the runs
 * @param checkpointing whether a checkpoint is running
 * @param compacting whether a compaction is running
 * @param stopped whether the store accepts no writes any more, after a failure
 */
public record Info(
        long format,
        long epoch,
        long size,
        long heapFree,
        long ringSize,
        long ringInUse,
        long memtableLogs,
        long memtableBytes,
        long runs,
        long runBytes,
        boolean checkpointing,
        boolean compacting,
        boolean stopped) {}
