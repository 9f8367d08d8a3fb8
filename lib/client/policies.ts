import type { ObjectReader } from "../needs.ts";
import { override } from "../policy/override.ts";
import { policiesIn } from "../policy/policy-documents.ts";
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
import type { Policy } from "../policy/types.ts";
import { validate } from "../policy/validate.ts";
import type { KubernetesObject } from "../review.ts";
import { type RequestMatch, rule } from "../rule.ts";
import type { Ruled } from "./plans.ts";

export type Policies = readonly Policy[] | ((cluster: ObjectReader) => readonly Policy[] | Promise<readonly Policy[]>);

export interface References {
  /** The hosts that references may call, and how; none by default. */
  http?: Partial<HttpSettings>;
  /** The Secrets that references may read, none by default: `{ group: "", resource: "secrets" }` allows all. */
  reads?: PolicySettings["reads"];
  /** Whether policies may contain scripts; true by default. */
  scripts?: boolean;
}

/** Returns the policies stored in a cluster, at most ten seconds old. */
export const policiesFrom = (cluster: ObjectReader): Promise<readonly Policy[]> =>
  policiesOf([...overridePolicies, ...validatePolicies], { settings: policySettings, reader: cluster });

export const applying = (policies: Policies, references: References = {}): Record<string, Ruled> => {
  const find = typeof policies === "function" ? policies : fixed(policies);
  const settings = { ...policySettings, ...references, http: { ...policySettings.http, ...references.http } };
  return {
    "policy-override": {
      rule: rule<KubernetesObject, PolicySettings, typeof needs>({
        ...{ summary: "Applies override policies.", match: every("CREATE", "UPDATE"), timeoutSeconds, settings, needs },
        // A patch may append to a list; a second call would append again.
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

/** The API server's default timeout of webhooks: policies may call services, and the first script waits for CUE. */
const timeoutSeconds = 10;

const needs = policyNeeds([...overridePolicies, ...validatePolicies]);

const every = (...operations: RequestMatch["operations"]): RequestMatch[] => [
  { apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations },
];

const fixed = (given: readonly Policy[]) => {
  const { policies, faults } = policiesIn(structuredClone(given));
  if (faults.length > 0) throw new Error(`policies: ${faults.join("; ")}`);
  return () => policies;
};
