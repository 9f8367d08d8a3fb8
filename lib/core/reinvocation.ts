/** Tells which mutators are called a second time, because another one changed the object after them. */
export interface ReinvocationTracker<Mutator> {
  note(mutator: Mutator, isChanged: boolean, isReinvoked: boolean): void;
  has(mutator: Mutator): boolean;
}

/**
 * Tracks which mutators the API server calls a second time: those that it called before another mutator changed the
 * object. A change in the second round counts for the mutators after it. There is no third round.
 */
export const createReinvocationTracker = <Mutator>(): ReinvocationTracker<Mutator> => {
  const called = new Set<Mutator>();
  const again = new Set<Mutator>();
  return {
    note: (mutator, isChanged, isReinvoked) => {
      if (isChanged) {
        for (const mutatorToRepeat of called) again.add(mutatorToRepeat);
        called.clear();
      }
      if (isReinvoked) called.add(mutator);
    },
    has: (mutator) => again.has(mutator),
  };
};

/**
 * Calls `ask` for all mutators in order, and again for those to reinvoke. `ask` resolves to whether it changed the
 * object; undefined ends all calls.
 */
export const callMutatorsInRounds = async <Mutator>(
  mutators: readonly Mutator[],
  isReinvoked: (mutator: Mutator) => boolean,
  ask: (mutator: Mutator) => Promise<boolean | undefined>,
): Promise<void> => {
  const again = createReinvocationTracker<Mutator>();
  for (const isSecond of [false, true])
    for (const mutator of mutators) {
      if (isSecond && !again.has(mutator)) continue;
      const isChanged = await ask(mutator);
      if (isChanged === undefined) return;
      again.note(mutator, isChanged, isReinvoked(mutator));
    }
};
