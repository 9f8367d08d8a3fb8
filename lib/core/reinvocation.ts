/** Finds the mutators (webhooks, rules or policies) that must be called a second time. */
export interface ReinvocationTracker<Mutator> {
  /** Must be called after each call of a mutator. `isChanged`: the mutator changed the object. */
  note(mutator: Mutator, isChanged: boolean, isReinvoked: boolean): void;
  /** Reports whether a mutator must be called a second time. */
  has(mutator: Mutator): boolean;
}

/**
 * Finds the mutators that the API server calls a second time: those that it called before another mutator changed the
 * object. In the second round, too, a change adds the mutators that were called before it, so they are called later in
 * that round if they follow. There is no third round.
 */
export const createReinvocationTracker = <Mutator>(): ReinvocationTracker<Mutator> => {
  const calledSinceChange = new Set<Mutator>();
  const toReinvoke = new Set<Mutator>();
  return {
    note: (mutator, isChanged, isReinvoked) => {
      if (isChanged) {
        for (const earlierMutator of calledSinceChange) toReinvoke.add(earlierMutator);
        calledSinceChange.clear();
      }
      if (isReinvoked) calledSinceChange.add(mutator);
    },
    has: (mutator) => toReinvoke.has(mutator),
  };
};

/**
 * Calls `ask` for all mutators in order, and a second time for the mutators to reinvoke. `ask` calls the mutator, and
 * resolves to true if the object was changed. If it resolves to undefined, no other mutator is called.
 */
export const callMutatorsInRounds = async <Mutator>(
  mutators: readonly Mutator[],
  isReinvoked: (mutator: Mutator) => boolean,
  ask: (mutator: Mutator) => Promise<boolean | undefined>,
): Promise<void> => {
  const tracker = createReinvocationTracker<Mutator>();
  for (const isSecondRound of [false, true])
    for (const mutator of mutators) {
      if (isSecondRound && !tracker.has(mutator)) continue;
      const isChanged = await ask(mutator);
      if (isChanged === undefined) return;
      tracker.note(mutator, isChanged, isReinvoked(mutator));
    }
};
