/** Returns for each new line the index of the equal old line, or -1. Apart from -1, the indexes ascend. */
export const findOldIndexesOfLines = (oldLines: readonly string[], newLines: readonly string[]): number[] => {
  // The numbers of equal lines at the start and at the end of both texts.
  let head = 0;
  const shorterLength = Math.min(oldLines.length, newLines.length);
  while (head < shorterLength && oldLines[head] === newLines[head]) head++;
  let tail = 0;
  while (tail < shorterLength - head && oldLines[oldLines.length - 1 - tail] === newLines[newLines.length - 1 - tail])
    tail++;
  const lines = newLines.map((_, index) => {
    if (index < head) return index;
    return index < newLines.length - tail ? -1 : index - newLines.length + oldLines.length;
  });
  for (const [oldLine, newLine] of findEqualLines(
    oldLines.slice(head, oldLines.length - tail),
    newLines.slice(head, newLines.length - tail),
  ))
    lines[newLine + head] = oldLine + head;
  return lines;
};

/** The maximum number of differing lines. If more differ, the diff shows all old lines as deleted, all new as added. */
const maxEdits = 1000;

/**
 * Returns pairs of indexes of equal lines, found by Myers' greedy diff algorithm. Returns no pairs if there are more
 * than `maxEdits` edits.
 */
const findEqualLines = (oldLines: readonly string[], newLines: readonly string[]): [number, number][] => {
  if (oldLines.length === 0 || newLines.length === 0) return [];
  /**
   * The furthest old line that was reached on each diagonal. A diagonal is an old index minus a new one. At first only
   * diagonal 1 has a line, so that the search begins on diagonal 0 at the first lines.
   */
  const reached = new Map([[1, 0]]);
  /** Copies of `reached`, each made before the search with one more edit. */
  const history: Map<number, number>[] = [];
  for (let edits = 0; edits <= Math.min(oldLines.length + newLines.length, maxEdits); edits++) {
    history.push(new Map(reached));
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      let oldIndex = advanceDiagonal(reached, diagonal, edits);
      while (
        oldIndex < oldLines.length &&
        oldIndex - diagonal < newLines.length &&
        oldLines[oldIndex] === newLines[oldIndex - diagonal]
      )
        oldIndex++;
      reached.set(diagonal, oldIndex);
      if (oldIndex >= oldLines.length && oldIndex - diagonal >= newLines.length)
        return tracePairs(history, oldLines.length, newLines.length);
    }
  }
  return [];
};

/**
 * A step of Myers' diff algorithm: returns the old line at which the search on a diagonal (old index minus new index)
 * starts after one more edit. `reached` has the furthest old line so far on each diagonal. The edit adds a new line if
 * it comes from the diagonal above, or deletes an old line if it comes from the one below.
 */
const advanceDiagonal = (reached: ReadonlyMap<number, number>, diagonal: number, edits: number): number =>
  comesFromAbove(reached, diagonal, edits) ? (reached.get(diagonal + 1) ?? -1) : (reached.get(diagonal - 1) ?? -1) + 1;

/** Reports whether Myers' diff algorithm comes to a diagonal from the one above it. Otherwise it comes from below. */
const comesFromAbove = (reached: ReadonlyMap<number, number>, diagonal: number, edits: number): boolean => {
  const [below, above] = [reached.get(diagonal - 1) ?? -1, reached.get(diagonal + 1) ?? -1];
  return diagonal === -edits || (diagonal !== edits && below < above);
};

/**
 * Returns the equal lines, as pairs of indexes, on the path that Myers' search found. Goes back from the ends of both
 * texts. `history[n]` is the state of the search before its n-th edit (`history[0]`: before its start, not used here):
 * the furthest old line that it had reached on each diagonal (old index minus new index).
 */
const tracePairs = (
  history: readonly Map<number, number>[],
  oldLength: number,
  newLength: number,
): [number, number][] => {
  const pairs: [number, number][] = [];
  let [oldEnd, newEnd] = [oldLength, newLength];
  for (let edits = history.length - 1; edits >= 0; edits--) {
    const reached = history[edits] ?? new Map<number, number>();
    const diagonal = oldEnd - newEnd;
    const previousDiagonal = comesFromAbove(reached, diagonal, edits) ? diagonal + 1 : diagonal - 1;
    const oldStart = edits === 0 ? 0 : (reached.get(previousDiagonal) ?? 0);
    const newStart = edits === 0 ? 0 : oldStart - previousDiagonal;
    while (oldEnd > oldStart && newEnd > newStart && oldEnd > 0 && newEnd > 0) pairs.push([--oldEnd, --newEnd]);
    if (edits > 0) [oldEnd, newEnd] = [oldStart, newStart];
  }
  return pairs.reverse();
};
