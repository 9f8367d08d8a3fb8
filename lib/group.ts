import type { Context } from "aws-lambda";
import { type Circumstances, type Decision, decide, type Finding, type Mode } from "./decide.ts";
import { endpoint, type Host, lambda, type Share } from "./endpoint.ts";
import { Failure, toFailure } from "./failure.ts";
import { isDirect } from "./lambda-event.ts";
import { applied } from "./patch.ts";
import { askInRounds } from "./reinvocation.ts";
import { matches } from "./request-match.ts";
import type { Outcome, Patch, Request, Status } from "./review.ts";
import { type Match, type Phase, type Rule, rule } from "./rule.ts";

/** What an entry of its own would say of a member, and the API server would check. */
export interface Membership {
  mode: Mode;
  settings: object;
  match: readonly Match[];
  /** Whether a request may pass where this one can't be asked. */
  failsOpen: boolean;
  /** Any one exempts. Namespaces' labels aren't known here: the group's entry has them, for all members alike. */
  exempt: { namespaces?: readonly string[]; users?: readonly string[]; groups?: readonly string[] };
}

type Memberships = Record<string, Membership>;

/** A group's share of postern.yaml; `alone` is how its members are where no cluster is named. */
export interface GroupShare extends Share {
  clusters: Record<string, { keyVersions: readonly number[]; mode: Mode; settings: Memberships }>;
  alone: Memberships;
}

/**
 * Several mutators as one Lambda handler, asked in the order in which they are given: one call, one patch, one answer.
 * A direct invocation that names a member is answered by that one.
 */
export const group = (members: Record<string, Rule>, share: GroupShare, host: Host = lambda(), judge = decide) => {
  const together = endpoint(facade(members, share.alone), share, byMember(host), askAll(members, judge));
  return (event: unknown, context: Context): Promise<unknown> => {
    const { member } = isDirect(event) ? event : {};
    const handler = member === undefined ? together : endpoint(...only(String(member), members, share), host);
    return handler(event, context);
  };
};

/** What an endpoint looks at of a rule, for all members. */
const facade = (members: Record<string, Rule>, alone: Memberships): Rule => {
  const needs = Object.assign({}, ...Object.values(members).map(({ needs }) => needs));
  const declared = Object.keys(needs).length > 0 && { needs };
  return rule({ summary: "Several rules.", match: [], settings: alone, ...declared, mutate() {} });
};

/** One member, as if it were in no group. */
const only = (name: string, members: Record<string, Rule>, share: GroupShare): [Rule, Share] => {
  const nobody = () => {
    throw new Failure(400, `${share.rule} has no member "${name}"; it has ${Object.keys(members).join(", ")}`);
  };
  const member = Object.hasOwn(members, name) ? members[name] : undefined;
  const clusters = Object.entries(share.clusters).flatMap(
    ([
      cluster,
      {
        keyVersions,
        settings: { [name]: own },
      },
    ]) => (own ? [[cluster, { keyVersions, mode: own.mode, settings: own.settings }]] : []),
  );
  return [
    member ?? rule({ summary: "Nobody.", match: [], mutate: nobody, validate: nobody }),
    { rule: name, clusters: Object.fromEntries(clusters) },
  ];
};

/** Asks every member that a request concerns, each about what those before it made of the object. */
const askAll =
  (members: Record<string, Rule>, judge: typeof decide): typeof decide =>
  async (_, phase, request, { settings, ...around }): Promise<Decision> => {
    const outcome = {
      allowed: true,
      warnings: [] as string[],
      audit: {} as Record<string, string>,
      patch: [] as Patch,
    };
    const findings = new Map<string, Finding>();
    const asked = Object.entries(settings as Memberships).filter(([, membership]) => concerns(membership, request));
    let { object } = request;

    let refusal: Status | undefined;
    // Those that only tell what they would do have told it in the first round.
    const isReinvoked = ([, { mode }]: (typeof asked)[number]) => mode === "enforce";
    await askInRounds(asked, isReinvoked, async ([name, { mode, settings, failsOpen }]) => {
      const rule = members[name];
      if (!rule) return false;
      const circumstances = { ...around, name, mode, settings };
      const said = await ask(judge, rule, phase, { ...request, object }, circumstances, failsOpen);
      note(findings, name, mode, said);
      const { status, warnings = [], audit = {}, patch = [] } = said.outcome;
      for (const warning of warnings) outcome.warnings.push(warning);
      for (const [key, value] of Object.entries(audit)) outcome.audit[`${name}.${key}`] = value;
      refusal = status && { ...status, message: `${name}: ${status.message}` };
      if (refusal) return undefined;
      for (const change of patch) outcome.patch.push(change);
      object = applied(object, patch);
      return patch.length > 0;
    });
    return decided(refusal ? { ...outcome, allowed: false, status: refusal } : outcome, findings);
  };

const decided = (outcome: Outcome, findings: Map<string, Finding>): Decision => {
  const members = [...findings].map(([, finding]) => finding);
  return { outcome, refused: !outcome.allowed, operations: outcome.patch?.length ?? 0, members };
};

/** One that fails open alone doesn't fail the others, as the API server would go on to the next webhook. */
const ask = async (
  judge: typeof decide,
  rule: Rule,
  phase: Phase,
  request: Request,
  circumstances: Circumstances,
  failsOpen: boolean,
): Promise<Said> => {
  try {
    return await judge(rule, phase, request, circumstances);
  } catch (thrown) {
    const { code, message } = toFailure(thrown);
    const error = new Failure(code, `${circumstances.name}: ${message}`, { cause: thrown });
    if (!failsOpen) throw error;
    return { outcome: { allowed: true }, refused: false, operations: 0, error };
  }
};

type Said = Decision & { error?: Failure };

/** What there is to tell of a member, over both rounds. */
const note = (findings: Map<string, Finding>, rule: string, mode: Mode, { refused, operations, error }: Said) => {
  const before = findings.get(rule);
  if (!refused && operations === 0 && !error) return;
  findings.set(rule, {
    rule,
    mode,
    refused: refused || before?.refused === true,
    operations: operations + (before?.operations ?? 0),
    error: error ?? before?.error,
  });
};

const concerns = ({ mode, match, exempt }: Membership, request: Request): boolean => {
  const { namespaces = [], users = [], groups = [] } = exempt;
  const { namespace = "", userInfo } = request;
  return (
    mode !== "off" &&
    match.some((one) => matches(one, request)) &&
    !namespaces.includes(namespace) &&
    !users.includes(userInfo.username ?? "") &&
    !userInfo.groups?.some((one) => groups.includes(one))
  );
};

/**
 * A member that refused, or failed where that fails nobody, has a line of its own beside the group's: denials are
 * counted under the rule that denies.
 */
const byMember = (host: Host): Host => ({
  ...host,
  journal(report) {
    host.journal(report);
    for (const member of report.members ?? [])
      if (member.refused || member.error)
        host.journal({ ...report, ...member, group: report.rule, code: member.error?.code ?? 200, members: undefined });
  },
});
