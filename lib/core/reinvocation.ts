/** Finds the mutators (webhooks, rules or policies) that must be called a second time. */
export interface ReinvocationTracker<Mutator> {
  /**
   * Must be called after each call of a mutator. `isChanged`: the mutator changed the object. `mayBeReinvoked`: it may
   * be called a second time.
   */
  note(mutator: Mutator, isChanged: boolean, mayBeReinvoked: boolean): void;
  /** Reports whether a mutator must be called a second time. */
  has(mutator: Mutator): boolean;
}

/**
 * Finds the mutators that the API server calls in a second round: those that it called before another mutator changed
 * the object. A change in the second round adds the mutators that were called since the last change, too. But they are
 * called again only if their turn in this round is still to come, because there is no third round.
 */
export const createReinvocationTracker = <Mutator>(): ReinvocationTracker<Mutator> => {
  const calledSinceChange = new Set<Mutator>();
  const toReinvoke = new Set<Mutator>();
  return {
    note: (mutator, isChanged, mayBeReinvoked) => {
      if (isChanged) {
        for (const earlierMutator of calledSinceChange) toReinvoke.add(earlierMutator);
        calledSinceChange.clear();
      }
      if (mayBeReinvoked) calledSinceChange.add(mutator);
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
  mayBeReinvoked: (mutator: Mutator) => boolean,
  ask: (mutator: Mutator) => Promise<boolean | undefined>,
): Promise<void> => {
  const tracker = createReinvocationTracker<Mutator>();
  for (const isSecondRound of [false, true])
    for (const mutator of mutators) {
      if (isSecondRound && !tracker.has(mutator)) continue;
      const isChanged = await ask(mutator);
      if (isChanged === undefined) return;
      tracker.note(mutator, isChanged, mayBeReinvoked(mutator));
    }
};
