import { scriptsIn } from "#lib/policy/checks/places.ts";
import { warningsOf } from "#lib/policy/checks/warnings.ts";
import { nameOf, type Policy } from "#lib/policy/kinds.ts";
import { policiesIn } from "#lib/policy/loaded.ts";
import { faultOfScript } from "#lib/policy/scripts.ts";
import { Complaint } from "../complaint.ts";
import { readFiles } from "../written.ts";
import { differencesOf } from "./differences.ts";
import { wordsOf } from "./words.ts";

/** What there is to say of a policy. One with faults is not admitted, and the rest is not said of it. */
export interface Explained {
  policy: string;
  does: string[];
  faults: string[];
  warnings: string[];
  unlikeKinitiras: string[];
}

/** What the documents hold of files of YAML or JSON, or of all those below a folder; there must be a policy among them. */
export const readPolicies = async (places: readonly string[]): Promise<unknown[]> => {
  const files = await Promise.all(places.map(readFiles));
  const documents = files.flat().flatMap((file) => file.documents);
  const { policies, faults } = policiesIn(documents);
  if (policies.length + faults.length > 0) return documents;
  throw new Complaint(`${places.join(", ")} ${places.length > 1 ? "hold" : "holds"} no policy`);
};

/** Every policy of these documents, explained. */
export const explainAll = async (
  documents: readonly unknown[],
  cue: (source: string) => Promise<string>,
): Promise<Explained[]> => {
  const { policies, faults } = policiesIn(documents);
  return [...inOrder(faults), ...(await Promise.all(policies.map((policy) => explained(policy, cue))))];
};

/** Faults begin with the policy that has them. */
const inOrder = (faults: string[]): Explained[] => {
  const byPolicy = Map.groupBy(faults, (fault) => fault.slice(0, fault.indexOf(": ")));
  return [...byPolicy].map(([policy, all]) => {
    const own = all.map((fault) => fault.slice(policy.length + 2));
    return { policy, does: [], faults: own, warnings: [], unlikeKinitiras: [] };
  });
};

const explained = async (policy: Policy, cue: (source: string) => Promise<string>): Promise<Explained> => {
  const compiled = await Promise.all(
    scriptsIn(policy).map(async ({ at, what }) => {
      const fault = await faultOfScript(what, cue);
      return fault === undefined ? [] : [`${at} does not compile: ${fault}`];
    }),
  );
  return {
    policy: `${policy.kind} ${nameOf(policy)}`,
    does: wordsOf(policy),
    faults: compiled.flat(),
    warnings: warningsOf(policy),
    unlikeKinitiras: differencesOf(policy),
  };
};

/** As somebody reads it. */
export const written = ({ policy, ...parts }: Explained): string => {
  const titles = [
    ["What it does", parts.does],
    ["What is wrong with it", parts.faults],
    ["What to look at", parts.warnings],
    ["Where kinitiras does something else", parts.unlikeKinitiras],
  ] as const;
  const blocks = titles
    .filter(([, lines]) => lines.length > 0)
    .map(([title, lines]) => `\n${title}:\n${lines.map((line) => `- ${line}\n`).join("")}`);
  return `${policy}\n${blocks.join("")}`;
};
