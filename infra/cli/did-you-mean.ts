/** Returns the known name that a misspelt one most likely means, or undefined if none is near. */
export const findClosest = (name: string, known: readonly string[]): string | undefined => {
  const wanted = normalizeRuleName(name);
  // Two swapped letters count once; one mistake in three letters is a misspelling.
  let nearest = Math.max(1, Math.floor(wanted.length / 3)) + 1;
  let found: string | undefined;
  for (const name of known) {
    const distance = computeDistance(wanted, normalizeRuleName(name));
    if (distance < nearest) [nearest, found] = [distance, name];
  }
  return found;
};

export const formatDidYouMean = (text: string, known: readonly string[], prefix = ""): string => {
  const name = findClosest(text, known);
  return name === undefined ? "" : `did you mean ${prefix}${name}? `;
};

/** Returns the known word that a wrong one most likely means; all known words if none is near. */
export const describeKnownWords = (text: string, known: readonly string[]): string =>
  formatDidYouMean(text, known).trim() || `${known.join(", ")} exist${known.length === 1 ? "s" : ""}`;

export const normalizeRuleName = (name: string): string => name.replaceAll("-", "").toLowerCase();

/** Returns the edit distance of two words: the letters to insert, delete, replace or swap with their neighbour. */
const computeDistance = (left: string, right: string): number => {
  let [before, last]: number[][] = [[], Array.from({ length: right.length + 1 }, (_, column) => column)];
  for (let row = 1; row <= left.length; row++) {
    const next = [row];
    for (let column = 1; column <= right.length; column++) {
      const isSame = left[row - 1] === right[column - 1];
      const isSwapped = left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1];
      next[column] = Math.min(
        getNumber(last, column) + 1,
        getNumber(next, column - 1) + 1,
        getNumber(last, column - 1) + (isSame ? 0 : 1),
        isSwapped ? getNumber(before, column - 2) + 1 : Number.POSITIVE_INFINITY,
      );
    }
    [before, last] = [last, next];
  }
  return getNumber(last, right.length);
};

const getNumber = (numbers: readonly number[] = [], index: number): number =>
  numbers[index] ?? Number.POSITIVE_INFINITY;
