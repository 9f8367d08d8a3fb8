import type { ObjectEvaluation } from "../evaluation/object-evaluation.ts";
import { type CheckReportWriter, createJsonListFormatter, stringifyAt } from "./check-report.ts";
import { diffEvaluation } from "./format.ts";

/** Creates the JSON report of `check`. The summary comes last, as it is known last. */
export const createJsonReport = (): CheckReportWriter => {
  const objects = createJsonListFormatter(2);
  let head = `{\n  "objects": `;
  return {
    add: (evaluation) => {
      const text = `${head}${objects.add(toJsonObject(evaluation))}`;
      head = "";
      return text;
    },
    end: ({ summary, unreadableInputs, notes, wasInterrupted }) => {
      const faults = unreadableInputs.map(({ fault }) => fault);
      const rest = Object.entries({ summary, faults, notes, ...(wasInterrupted && { isCut: true }) });
      const members = rest.map(([key, value]) => `,\n  ${JSON.stringify(key)}: ${stringifyAt(value, 1)}`);
      return [`${head}${objects.end()}${members.join("")}\n}\n`];
    },
  };
};

/** Returns an object's result as the JSON report prints it. */
const toJsonObject = (evaluation: ObjectEvaluation): object => {
  const { checked, audit, steps } = evaluation;
  const { madeBy } = checked;
  const hooks = steps
    .filter(({ outcome, isPlugin }) => outcome !== "skipped" && !isPlugin)
    .map(({ hook, configuration, phase, round, outcome, why, allowed, patch, failure }) => {
      const changed = (patch?.length ?? 0) > 0;
      return { hook, configuration, phase, round, outcome, why, allowed, changed, failure };
    });
  return {
    ...checked,
    ...(madeBy && { madeBy: `${madeBy.kind} ${madeBy.name}` }),
    audit,
    hooks,
    difference: diffEvaluation(evaluation),
  };
};
