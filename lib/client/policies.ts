import type { Reader } from "../needs.ts";
import type { Policy } from "../policy/kinds.ts";
import { policiesIn } from "../policy/loaded.ts";
import { override } from "../policy/override.ts";
import { bookOf } from "../policy/policy-index.ts";
import {
  isJudged,
  overridePolicies,
  type PolicySettings,
  policiesOf,
  policyNeeds,
  policySettings,
  reachOf,
  refusalBy,
  subjectOf,
  validatePolicies,
} from "../policy/policy-rules.ts";
import type { HttpSettings } from "../policy/references/http.ts";
import { validate } from "../policy/validate.ts";
import type { KubernetesObject } from "../review.ts";
import { type Match, rule } from "../rule.ts";
import type { Ruled } from "./plans.ts";

/** Policies, or what finds them each time they are needed. */
export type Policies = readonly Policy[] | ((cluster: Reader) => readonly Policy[] | Promise<readonly Policy[]>);

/** What evaluating policies may do. */
export interface References {
  /** Which hosts references may ask, and how; none, if not said. */
  http?: Partial<HttpSettings>;
  /** Which Secrets they may read: `{ group: "", resource: "secrets" }` for all. */
  reads?: PolicySettings["reads"];
  /** Whether policies may hold scripts; they may, if not said. */
  scripts?: boolean;
}

/** The policies that a cluster keeps, as they were at most ten seconds ago. */
export const policiesFrom = (cluster: Reader): Promise<readonly Policy[]> =>
  policiesOf([...overridePolicies, ...validatePolicies], { settings: policySettings, reader: cluster });

/** The rules that apply policies, as they stand in the catalogue. */
export const applying = (policies: Policies, references: References = {}): Record<string, Ruled> => {
  const find = typeof policies === "function" ? policies : fixed(policies);
  const settings = { ...policySettings, ...references, http: { ...policySettings.http, ...references.http } };
  return {
    "policy-override": {
      rule: rule<KubernetesObject, PolicySettings, typeof needs>({
        ...{ summary: "Applies override policies.", match: every("CREATE", "UPDATE"), timeoutSeconds, settings, needs },
        // A patch may add to a list, and would each time.
        reinvocationPolicy: "Never",
        async mutate(object, around) {
          if (!isJudged(around.request)) return;
          await override(bookOf(await find(around.reader)), subjectOf(object, around), reachOf(around));
        },
      }),
    },
    "policy-validate": {
      rule: rule<KubernetesObject, PolicySettings, typeof needs>({
        ...{
          summary: "Asks validate policies.",
          match: every("CREATE", "UPDATE", "DELETE"),
          timeoutSeconds,
          settings,
          needs,
        },
        async validate(object, around) {
          if (!isJudged(around.request)) return undefined;
          const { denied } = await validate(
            bookOf(await find(around.reader)),
            subjectOf(object, around),
            reachOf(around),
          );
          return refusalBy(denied);
        },
      }),
    },
  };
};

/** They may ask somebody else, and the first script waits for CUE to start: no less than API servers wait, if not told. */
const timeoutSeconds = 10;

const needs = policyNeeds([...overridePolicies, ...validatePolicies]);

const every = (...operations: Match["operations"]): Match[] => [
  { apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations },
];

const fixed = (given: readonly Policy[]) => {
  const { policies, faults } = policiesIn(structuredClone(given));
  if (faults.length > 0) throw new Error(`policies: ${faults.join("; ")}`);
  return () => policies;
};
