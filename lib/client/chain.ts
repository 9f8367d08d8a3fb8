import { type Decision, evaluateRule, type Mode } from "../decide.ts";
import { type Failure, toFailure } from "../failure.ts";
import { type Capabilities, chooseCapabilities, rejectWhenLate } from "../needs.ts";
import { isSelected, type LabelSelector } from "../objects/selection.ts";
import { applyPatch } from "../patch.ts";
import { askInRounds } from "../reinvocation.ts";
import { matchesRequest } from "../request-match.ts";
import type { AdmissionRequest, KubernetesObject, Patch } from "../review.ts";
import type { Phase } from "../rule.ts";
import { denied, failed, type Refusal } from "./answers.ts";
import type { Plan } from "./plans.ts";

export interface Told {
  rule: string;
  phase: Phase;
  mode: Mode;
  request: AdmissionRequest;
  /** The outcome in the rule's mode, and whether the rule refused regardless of its mode. */
  decision?: Decision;
  failure?: Failure;
}

export interface Around {
  failurePolicy: "Fail" | "Ignore";
  now(): Date;
  world(milliseconds: number): Capabilities;
  tell(told: Told): void;
}

export interface Judged {
  refusal?: Refusal;
  object: KubernetesObject;
  changed: boolean;
  warnings: string[];
}

export const concerned = (plans: readonly Plan[], phase: Phase, request: AdmissionRequest): Plan[] =>
  plans.filter(({ match }) => match[phase]?.some((one) => matchesRequest(one, request)));

/** Evaluates a request in the API server's order: mutating rules one after another, then validating rules in parallel. */
export const judge = async (plans: readonly Plan[], request: AdmissionRequest, around: Around): Promise<Judged> => {
  const mutated = await mutate(concerned(plans, "mutate", request), request, around);
  if (mutated.refusal) return mutated;
  const last = mutated.changed ? { ...request, object: mutated.object } : request;
  const said = await Promise.all(
    concerned(plans, "validate", request).map((plan) => ask(plan, "validate", last, around)),
  );
  const warnings = [...mutated.warnings, ...said.flatMap(({ warnings }) => warnings)];
  const refusal = said.find(({ refusal }) => refusal)?.refusal;
  return { ...mutated, warnings, ...(refusal && { refusal }) };
};

const mutate = async (asked: readonly Plan[], request: AdmissionRequest, around: Around): Promise<Judged> => {
  const warnings: string[] = [];
  let { object } = request;
  let refusal: Refusal | undefined;
  const isReinvoked = ({ mode, rule }: Plan) => mode === "enforce" && rule.reinvocationPolicy !== "Never";
  await askInRounds(asked, isReinvoked, async (plan) => {
    const said = await ask(plan, "mutate", { ...request, object }, around);
    for (const warning of said.warnings) warnings.push(warning);
    refusal = said.refusal;
    if (refusal) return undefined;
    object = applyPatch(object, said.patch);
    return said.patch.length > 0;
  });
  const changed = refusal === undefined && object !== request.object;
  // Rules only edit a draft of the object, so the result is an object, too.
  return { object: object as KubernetesObject, changed, warnings, ...(refusal && { refusal }) };
};

interface Said {
  patch: Patch;
  warnings: string[];
  refusal?: Refusal;
}

const ask = async (plan: Plan, phase: Phase, request: AdmissionRequest, around: Around): Promise<Said> => {
  const { name, mode, rule, settings, variant, milliseconds, entry } = plan;
  const { decision, failure } = await attempt(async () => {
    if (Object.keys(plan.selectors).length > 0 && !(await isAbout(plan, request, around))) return undefined;
    const world = chooseCapabilities(
      rule,
      {},
      { world: (_, milliseconds) => around.world(milliseconds) },
      milliseconds,
    );
    const said = evaluateRule(rule, phase, request, { ...{ name, mode, settings, variant, world }, now: around.now() });
    return said instanceof Promise ? rejectWhenLate(said, milliseconds) : said;
  });
  if (decision === undefined && failure === undefined) return nothing;
  around.tell({ rule: name, phase, mode, request, ...(decision && { decision }), ...(failure && { failure }) });
  const isFatal = failure && mode === "enforce" && around.failurePolicy === "Fail";
  const { status, patch = [], warnings = [] } = decision?.outcome ?? {};
  const refusal = isFatal ? failed(entry, failure) : status && denied(entry, status);
  return { patch, warnings, ...(refusal && { refusal }) };
};

const nothing: Said = { patch: [], warnings: [] };

/** Reports whether the rule's selectors select a request, as the API server evaluates them. */
const isAbout = async (
  { selectors: { ofNamespace, ofObject }, milliseconds }: Plan,
  { object, oldObject, namespace, resource: { group, resource } }: AdmissionRequest,
  { world }: Around,
): Promise<boolean> => {
  const isTaken = (selector: LabelSelector, one: unknown) =>
    isSelected(selector, Object(Object(one).metadata).labels ?? {});
  if (ofObject && ![object, oldObject].some((one) => one != null && isTaken(ofObject, one))) return false;
  if (ofNamespace === undefined || namespace === undefined) return true;
  if (group === "" && resource === "namespaces") return isTaken(ofNamespace, object ?? oldObject);
  const found = await world(milliseconds).get({ group: "", resource: "namespaces" }, namespace);
  return found !== undefined && isTaken(ofNamespace, found);
};

const attempt = async (
  decide: () => Promise<Decision | undefined>,
): Promise<{ decision?: Decision | undefined; failure?: Failure }> => {
  try {
    return { decision: await decide() };
  } catch (thrown) {
    return { failure: toFailure(thrown) };
  }
};
