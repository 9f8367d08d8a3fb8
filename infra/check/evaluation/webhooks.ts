import { celEvaluator } from "#infra/apiserver/admission/cel/conditions.ts";
import { type Hook, type Hooks, parseHooks } from "#infra/apiserver/admission/hooks.ts";
import { Complaint } from "../../cli/complaint.ts";
import type { Manifest } from "../manifests/manifests.ts";
import type { Environment } from "./environment.ts";
import { callForeign } from "./foreign-webhooks.ts";
import type { Rules } from "./rules.ts";

/** Returns a cluster's webhooks: its rules' and the foreign ones in manifests, which are called only at `hosts`. */
export const openWebhooks = (
  rules: Rules,
  foreign: readonly Manifest[],
  cluster: string,
  hosts: readonly string[],
): Pick<Environment, "hooks" | "call" | "cel" | "nameOf" | "suggestionOf"> => {
  const hooks = extendTimeouts(parseHooks([...rules.configurations, ...foreign.map(({ object }) => object)]), rules);
  checkHooks(hooks, rules, cluster);
  return {
    hooks,
    call: (hook, review) => rules.call(hook, review) ?? callForeign(hook, review, hosts),
    cel: {
      compile: (expression) => {
        const evaluate = celEvaluator.compile(expression);
        if (!rules.isSparing(expression)) return evaluate;
        return (variables) => {
          const evaluated = evaluate(variables);
          return "unsupported" in evaluated ? { holds: true } : evaluated;
        };
      },
    },
    nameOf: (hook, message) => rules.nameOf(hook, message) ?? hook,
    suggestionOf: rules.suggestionOf,
  };
};

/** Gives rules 30 seconds: their speed on this machine says nothing about their speed where they are deployed. */
const extendTimeouts = ({ mutating, validating, faults }: Hooks, rules: Rules): Hooks => {
  const calm = (hook: Hook) => (rules.nameOf(hook.name) === undefined ? hook : { ...hook, timeoutSeconds: 30 });
  return { mutating: mutating.map(calm), validating: validating.map(calm), faults };
};

const checkHooks = ({ faults, mutating, validating }: Hooks, { isAny }: Rules, cluster: string) => {
  if (!isAny && mutating.length + validating.length + faults.length === 0)
    throw new Complaint(
      `no rule is on for cluster "${cluster}"; postern.yaml says which are, and --rules names others`,
    );
  if (faults.length > 0) throw new Complaint(faults.map((fault) => `--webhooks: ${fault}`).join("\n"));
};
