/** Returns the known name that is most similar to a misspelt name; undefined if no known name is similar. */
export const findClosest = (name: string, knownNames: readonly string[]): string | undefined => {
  const wanted = normalizeRuleName(name);
  // A similar name has at most one mistake for every three letters. Two swapped letters are one mistake.
  let smallestDistance = Math.max(1, Math.floor(wanted.length / 3)) + 1;
  let closest: string | undefined;
  for (const knownName of knownNames) {
    const distance = computeDistance(wanted, normalizeRuleName(knownName));
    if (distance < smallestDistance) [smallestDistance, closest] = [distance, knownName];
  }
  return closest;
};

/** Returns a question such as "did you mean --cluster? "; empty if no known name is similar. */
export const formatDidYouMean = (text: string, known: readonly string[], prefix = ""): string => {
  const name = findClosest(text, known);
  return name === undefined ? "" : `did you mean ${prefix}${name}? `;
};

/** Returns a question that suggests a similar known word, or a sentence with all known words if none is similar. */
export const describeKnownWords = (text: string, known: readonly string[]): string =>
  formatDidYouMean(text, known).trim() || `${known.join(", ")} exist${known.length === 1 ? "s" : ""}`;

/** Returns a name without hyphens and in lower case: AlwaysPullImages and always-pull-images become equal. */
export const normalizeRuleName = (name: string): string => name.replaceAll("-", "").toLowerCase();

/**
 * Returns the edit distance of two words: the smallest number of edits that make them equal. An edit inserts, deletes
 * or replaces a letter, or swaps two neighbouring letters.
 */
const computeDistance = (left: string, right: string): number => {
  // The rows of the table of distances: the row before the last one, and the last one.
  let [secondToLast, last]: number[][] = [[], Array.from({ length: right.length + 1 }, (_, column) => column)];
  for (let row = 1; row <= left.length; row++) {
    const next = [row];
    for (let column = 1; column <= right.length; column++) {
      const isSame = left[row - 1] === right[column - 1];
      const isSwapped = left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1];
      next[column] = Math.min(
        getNumber(last, column) + 1,
        getNumber(next, column - 1) + 1,
        getNumber(last, column - 1) + (isSame ? 0 : 1),
        isSwapped ? getNumber(secondToLast, column - 2) + 1 : Number.POSITIVE_INFINITY,
      );
    }
    [secondToLast, last] = [last, next];
  }
  return getNumber(last, right.length);
};

const getNumber = (numbers: readonly number[] = [], index: number): number =>
  numbers[index] ?? Number.POSITIVE_INFINITY;
