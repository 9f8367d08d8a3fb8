import { isErrorNamed } from "../../../infra/aws/errors.ts";
import { toSentence } from "../../../infra/cli/complaint.ts";
import type { Observation, Suite } from "../suite.ts";
import { differs, notSeen, seen } from "../suite.ts";

/** The check of a fact. docs/background/aws-facts.md has a line for each id. */
export interface Fact {
  id: string;
  /** "deployed": checked while no other step changes the stages; "afterwards": checked after all other steps. */
  when: "deployed" | "afterwards";
  check(suite: Suite): Promise<Observation>;
}

/** Observes whether AWS refuses a call with one of these errors. */
export const observeRefusal = async (act: () => Promise<unknown>, ...names: string[]): Promise<Observation> => {
  try {
    await act();
  } catch (error) {
    const name = error instanceof Error ? error.name : "";
    return isErrorNamed(error, ...names) ? seen(name) : differs(`${name}: ${toSentence(error)}`);
  }
  return differs("AWS accepts it");
};

/** Returns the observation of a condition. The sentence describes it, whether the condition holds or not. */
export const observe = (isSeen: boolean, sentence: string): Observation =>
  isSeen ? seen(sentence) : differs(sentence);

/** Checks all facts with this `when`, one after the other. */
export const checkFacts = async (suite: Suite, facts: Fact[], when: Fact["when"]): Promise<void> => {
  for (const { id, check } of facts.filter((fact) => fact.when === when)) {
    const found = suite.signal.aborted
      ? notSeen("the run was stopped before")
      : await check(suite).catch((error: unknown) => notSeen(`the check fails: ${toSentence(error)}`));
    suite.facts.set(id, found);
    suite.log(`${found.outcome.padEnd(8)} ${id}: ${found.sentence}`);
  }
};
