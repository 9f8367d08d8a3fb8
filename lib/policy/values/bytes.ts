/** Below 0 where one text stands before the other byte by byte, above where it stands behind. */
export const compareBytes = (one: string, other: string): number =>
  Buffer.compare(Buffer.from(one), Buffer.from(other));
