/** Returns the known name that a misspelt one most likely means, or undefined if none is near. */
export const closest = (given: string, known: readonly string[]): string | undefined => {
  const wanted = spelling(given);
  // Two swapped letters count once; one mistake in three letters is a misspelling.
  let nearest = Math.max(1, Math.floor(wanted.length / 3)) + 1;
  let found: string | undefined;
  for (const name of known) {
    const distance = distanceBetween(wanted, spelling(name));
    if (distance < nearest) [nearest, found] = [distance, name];
  }
  return found;
};

export const didYouMean = (given: string, known: readonly string[], prefix = ""): string => {
  const name = closest(given, known);
  return name === undefined ? "" : `did you mean ${prefix}${name}? `;
};

export const spelling = (name: string): string => name.replaceAll("-", "").toLowerCase();

/** Counts the letters to insert, delete, replace or swap with their neighbour. */
const distanceBetween = (one: string, other: string): number => {
  let [before, last]: number[][] = [[], Array.from({ length: other.length + 1 }, (_, column) => column)];
  for (let row = 1; row <= one.length; row++) {
    const next = [row];
    for (let column = 1; column <= other.length; column++) {
      const isSame = one[row - 1] === other[column - 1];
      const isSwapped = one[row - 1] === other[column - 2] && one[row - 2] === other[column - 1];
      next[column] = Math.min(
        at(last, column) + 1,
        at(next, column - 1) + 1,
        at(last, column - 1) + (isSame ? 0 : 1),
        isSwapped ? at(before, column - 2) + 1 : Number.POSITIVE_INFINITY,
      );
    }
    [before, last] = [last, next];
  }
  return at(last, other.length);
};

const at = (numbers: readonly number[] = [], index: number): number => numbers[index] ?? Number.POSITIVE_INFINITY;
