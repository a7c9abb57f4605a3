// What every kind of sink can do.

/** Charges of one UTC day of settlement, in their order. */
export type Batch = {
  /** `YYYY-MM-DD`. */
  readonly day: string;
  /** Each with its line feed. */
  readonly lines: string;
};

/** The file that is written, and how many bytes of it count. Both empty before the first batch. */
export type FilePosition = { readonly file: string; readonly bytes: bigint };

export type SinkWriter = {
  /**
   * Stores a batch. When it returns, the batch outlives a crash. `position`: what the batch before
   * returned. Throws an Error if it cannot; the batch comes again.
   */
  write(batch: Batch, position: FilePosition): Promise<FilePosition>;
};
