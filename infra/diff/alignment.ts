/** Returns, for each line of `now`, the index of the same line in `old`, in ascending order; -1 for a new line. */
export const findOldIndexesOfLines = (old: readonly string[], now: readonly string[]): number[] => {
  let head = 0;
  const shorter = Math.min(old.length, now.length);
  while (head < shorter && old[head] === now[head]) head++;
  let tail = 0;
  while (tail < shorter - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail++;
  const lines = now.map((_, index) => {
    if (index < head) return index;
    return index < now.length - tail ? -1 : index - now.length + old.length;
  });
  for (const [oldLine, newLine] of findEqualLines(
    old.slice(head, old.length - tail),
    now.slice(head, now.length - tail),
  ))
    lines[newLine + head] = oldLine + head;
  return lines;
};

/** The maximum number of differing lines. A diff with more shows all old lines as deleted, and all new as added. */
const mostEdits = 1000;

/** Returns the pairs of equal lines by Myers' greedy algorithm; none if there are more than `mostEdits` edits. */
const findEqualLines = (old: readonly string[], now: readonly string[]): [number, number][] => {
  if (old.length === 0 || now.length === 0) return [];
  /** The furthest old line reached on each diagonal; one map for each number of edits (Myers' algorithm). */
  const history: Map<number, number>[] = [];
  let reached = new Map([[1, 0]]);
  for (let edits = 0; edits <= Math.min(old.length + now.length, mostEdits); edits++) {
    history.push(new Map(reached));
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      let at = advanceDiagonal(reached, diagonal, edits);
      while (at < old.length && at - diagonal < now.length && old[at] === now[at - diagonal]) at++;
      reached.set(diagonal, at);
      if (at >= old.length && at - diagonal >= now.length) return tracePairs(history, old.length, now.length);
    }
    reached = new Map(reached);
  }
  return [];
};

const advanceDiagonal = (reached: ReadonlyMap<number, number>, diagonal: number, edits: number): number => {
  const [below, above] = [reached.get(diagonal - 1) ?? -1, reached.get(diagonal + 1) ?? -1];
  return diagonal === -edits || (diagonal !== edits && below < above) ? above : below + 1;
};

const tracePairs = (
  history: readonly Map<number, number>[],
  oldLength: number,
  nowLength: number,
): [number, number][] => {
  const pairs: [number, number][] = [];
  let [oldEnd, newEnd] = [oldLength, nowLength];
  for (let edits = history.length - 1; edits >= 0; edits--) {
    const reached = history[edits] ?? new Map<number, number>();
    const diagonal = oldEnd - newEnd;
    const [below, above] = [reached.get(diagonal - 1) ?? -1, reached.get(diagonal + 1) ?? -1];
    const before = diagonal === -edits || (diagonal !== edits && below < above) ? diagonal + 1 : diagonal - 1;
    const from = edits === 0 ? 0 : (reached.get(before) ?? 0);
    const fromOther = edits === 0 ? 0 : from - before;
    while (oldEnd > from && newEnd > fromOther && oldEnd > 0 && newEnd > 0) pairs.push([--oldEnd, --newEnd]);
    if (edits > 0) [oldEnd, newEnd] = [from, fromOther];
  }
  return pairs.reverse();
};
