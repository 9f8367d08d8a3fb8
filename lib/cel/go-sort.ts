/**
 * Sorts the indices from 0 as Go's `sort.Slice` does. It doesn't keep the order of equal elements, but always has the
 * same result, so that its steps are followed here: a quicksort that chooses its pivots from samples, sorts short ranges
 * by insertion, and becomes a heapsort after too many bad pivots.
 */
export const sortIndices = (size: number, isLess: (left: number, right: number) => boolean): readonly number[] => {
  const indices = Array.from({ length: size }, (_, index) => index);
  const precedes = (left: number, right: number) => isLess(indices[left] as number, indices[right] as number);
  const swap = (left: number, right: number) => {
    [indices[left], indices[right]] = [indices[right] as number, indices[left] as number];
  };

  /** Moves an element to the left while it is less than the one before it. */
  const sink = (position: number, start: number) => {
    for (let at = position; at > start && precedes(at, at - 1); at--) swap(at, at - 1);
  };

  const siftDown = (start: number, from: number, count: number) => {
    for (let root = from; ; ) {
      let child = 2 * root + 1;
      if (child >= count) return;
      if (child + 1 < count && precedes(start + child, start + child + 1)) child++;
      if (!precedes(start + root, start + child)) return;
      swap(start + root, start + child);
      root = child;
    }
  };

  const sortByHeap = (start: number, end: number) => {
    const count = end - start;
    for (let root = Math.trunc((count - 1) / 2); root >= 0; root--) siftDown(start, root, count);
    for (let last = count - 1; last >= 0; last--) {
      swap(start, start + last);
      siftDown(start, 0, last);
    }
  };

  /** Returns a pivot, and how many of the samples were out of order. */
  const choosePivot = (start: number, end: number): [pivot: number, swaps: number] => {
    const quarter = (end - start) >> 2;
    let swaps = 0;
    const order = (left: number, right: number): [number, number] => {
      if (!precedes(right, left)) return [left, right];
      swaps++;
      return [right, left];
    };
    const findMedian = (one: number, two: number, three: number): number => {
      const [low, middle] = order(one, two);
      const [next] = order(middle, three);
      return order(low, next)[1];
    };
    const samples = [start + quarter, start + quarter * 2, start + quarter * 3].map((sample) =>
      end - start >= 50 ? findMedian(sample - 1, sample, sample + 1) : sample,
    );
    return [findMedian(...(samples as [number, number, number])), swaps];
  };

  /** Sorts a range in which few elements are out of order; returns false if they are too many. */
  const sortNearlySorted = (start: number, end: number): boolean => {
    let at = start + 1;
    for (let step = 0; step < 5; step++) {
      while (at < end && !precedes(at, at - 1)) at++;
      if (at === end) return true;
      if (end - start < 50) return false;
      swap(at, at - 1);
      if (at - start >= 2) sink(at - 1, 0);
      for (let next = at + 1; next < end && precedes(next, next - 1); next++) swap(next, next - 1);
    }
    return false;
  };

  /** Swaps three elements with ones that depend only on the size of the range. */
  const breakPattern = (start: number, end: number) => {
    const count = end - start;
    const mask = BigInt(2 ** (32 - Math.clz32(count)) - 1);
    let random = BigInt(count);
    const middle = start + (count >> 2) * 2;
    for (let at = middle - 1; at <= middle + 1; at++) {
      random ^= BigInt.asUintN(64, random << 13n);
      random ^= random >> 7n;
      random ^= BigInt.asUintN(64, random << 17n);
      const other = Number(random & mask);
      swap(at, start + (other >= count ? other - count : other));
    }
  };

  /** Moves what belongs before the first element of a range to its left; returns where the right part begins. */
  const partition = (start: number, end: number, isBefore: (position: number) => boolean): [number, boolean] => {
    let [left, right, swaps] = [start + 1, end - 1, 0];
    for (; ; swaps++) {
      while (left <= right && isBefore(left)) left++;
      while (left <= right && !isBefore(right)) right--;
      if (left > right) return [left, swaps === 0];
      swap(left++, right--);
    }
  };

  const sortRange = (from: number, to: number, badPivots: number) => {
    let [start, end, limit, isBalanced, isPartitioned] = [from, to, badPivots, true, true];
    for (;;) {
      const count = end - start;
      if (count <= 12) {
        for (let at = start + 1; at < end; at++) sink(at, start);
        return;
      }
      if (limit === 0) return sortByHeap(start, end);
      if (!isBalanced) {
        breakPattern(start, end);
        limit--;
      }
      let [pivot, swaps] = choosePivot(start, end);
      if (swaps === 12) {
        for (let left = start, right = end - 1; left < right; left++, right--) swap(left, right);
        pivot = end - 1 - (pivot - start);
        swaps = 0;
      }
      if (isBalanced && isPartitioned && swaps === 0 && sortNearlySorted(start, end)) return;
      const isLeast = start > 0 && !precedes(start - 1, pivot);
      const first = start;
      swap(first, pivot);
      if (isLeast) {
        // Nothing is less than the pivot: what equals it is in place.
        [start] = partition(first, end, (position) => !precedes(first, position));
        continue;
      }
      const [right, isUnchanged] = partition(first, end, (position) => precedes(position, first));
      const middle = right - 1;
      swap(middle, first);
      isPartitioned = isUnchanged;
      isBalanced = Math.min(middle - start, end - middle) >= count >> 3;
      if (middle - start < end - middle) {
        sortRange(start, middle, limit);
        start = middle + 1;
      } else {
        sortRange(middle + 1, end, limit);
        end = middle;
      }
    }
  };

  sortRange(0, size, 32 - Math.clz32(size));
  return indices;
};
