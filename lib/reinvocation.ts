/** Which mutators are asked a second time. */
export interface Reinvocations<Mutator> {
  /** Notes that a mutator was asked: whether it changed the object, and whether it is asked again when others do. */
  note(mutator: Mutator, isChanged: boolean, isReinvoked: boolean): void;
  has(mutator: Mutator): boolean;
}

/**
 * Says which mutators the API server calls a second time: those that it called before another one changed the object. In
 * the second round a change is news to those after it, too. There is no third round.
 */
export const openReinvocations = <Mutator>(): Reinvocations<Mutator> => {
  /** Those that are asked again if the object changes now. */
  const asked = new Set<Mutator>();
  const again = new Set<Mutator>();
  return {
    note: (mutator, isChanged, isReinvoked) => {
      if (isChanged) {
        for (const one of asked) again.add(one);
        asked.clear();
      }
      if (isReinvoked) asked.add(mutator);
    },
    has: (mutator) => again.has(mutator),
  };
};

/**
 * Asks mutators one after another, and some of them a second time. `ask` resolves to whether the mutator changed the
 * object, or to undefined where its refusal ends everything.
 */
export const askInRounds = async <Mutator>(
  mutators: readonly Mutator[],
  isReinvoked: (mutator: Mutator) => boolean,
  ask: (mutator: Mutator) => Promise<boolean | undefined>,
): Promise<void> => {
  const again = openReinvocations<Mutator>();
  for (const isSecond of [false, true])
    for (const mutator of mutators) {
      if (isSecond && !again.has(mutator)) continue;
      const isChanged = await ask(mutator);
      if (isChanged === undefined) return;
      again.note(mutator, isChanged, isReinvoked(mutator));
    }
};
