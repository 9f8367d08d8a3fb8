import "../features.ts";
import { Failure } from "../failure.ts";
import { matchesRequest, toResourceKey } from "../request-match.ts";
import type { AdmissionRequest, Patch, ReviewOutcome } from "../review.ts";
import { type RequestMatch, type Rule, rule } from "../rule.ts";
import {
  type ClusterSetup,
  createEndpoint,
  type Endpoint,
  type EndpointConfig,
  type EndpointHost,
} from "./endpoint.ts";
import {
  type EnforcementMode,
  type EvaluateRequest,
  evaluateRule,
  type GroupMemberDecision,
  type RuleDecision,
} from "./evaluation.ts";
import type { RuleException } from "./exceptions.ts";
import { applyPatch } from "./patch.ts";
import { callMutatorsInRounds } from "./reinvocation.ts";
import { explainFailure } from "./review-explanation.ts";

/** What a member's own webhook entry would contain. The endpoint checks it, as the group's shared entry can't. */
export interface GroupMemberConfig {
  mode: EnforcementMode;
  settings: object;
  match: readonly RequestMatch[];
  /** True if a request is admitted when this member of the group fails. */
  failsOpen: boolean;
  /**
   * The namespaces, users and groups whose requests are exempt from this member, and the exempt resources as
   * `group/resource/subresource`. The API server itself tests labels of namespaces, for the whole group of rules.
   * Exemptions that end are `exceptions`.
   */
  exempt: {
    namespaces?: readonly string[];
    users?: readonly string[];
    groups?: readonly string[];
    resources?: readonly string[];
    exceptions?: readonly RuleException[];
  };
}

type Memberships = Record<string, GroupMemberConfig>;

/** The config of a group; `alone` holds its members' config for invocations without a cluster. */
export interface GroupConfig extends EndpointConfig<Memberships> {
  alone: Memberships;
}

/**
 * Creates one endpoint of several mutators, asked in the given order: one call, one patch, one answer. A review for one
 * member is evaluated by that member alone.
 */
export const createGroupEndpoint = (
  members: Record<string, Rule>,
  config: GroupConfig,
  host: EndpointHost,
  evaluate = evaluateRule,
): Endpoint => {
  const facade = buildFacade(members, config.alone);
  const group = createEndpoint(facade, config, logByMember(host), evaluateMembers(members, evaluate));
  return {
    ...group,
    evaluateReview: (input) => {
      if (input.member === undefined) return group.evaluateReview(input);
      const [rule, ownConfig] = selectMember(input.member, members, config);
      return createEndpoint(rule, ownConfig, host, evaluate).evaluateReview(input);
    },
  };
};

/**
 * Returns a rule that stands for a group: it has the needs of all members; `evaluateMembers` evaluates them in its
 * place.
 */
const buildFacade = (members: Record<string, Rule>, alone: Memberships): Rule => {
  const needs = Object.assign({}, ...Object.values(members).map(({ needs }) => needs));
  return rule({ summary: "Several rules.", match: [], settings: alone, needs, mutate() {} });
};

const selectMember = (name: string, members: Record<string, Rule>, config: GroupConfig): [Rule, EndpointConfig] => {
  const rejectUnknownMember = () => {
    throw new Failure(400, `${config.rule} has no member "${name}"; it has ${Object.keys(members).join(", ")}`);
  };
  const member = Object.hasOwn(members, name) ? members[name] : undefined;
  const selectSetup = ({ keyVersions, settings, kubernetes }: ClusterSetup<Memberships>): ClusterSetup => {
    const { mode = "off", settings: own = {} } = (Object.hasOwn(settings, name) ? settings[name] : undefined) ?? {};
    return { keyVersions, mode, settings: own, ...(kubernetes !== undefined && { kubernetes }) };
  };
  const clusters = Object.entries(config.clusters).map(([cluster, setup]) => [
    cluster,
    typeof setup === "string" ? setup : selectSetup(setup),
  ]);
  return [
    member ?? rule({ summary: "No member.", match: [], mutate: rejectUnknownMember, validate: rejectUnknownMember }),
    {
      rule: name,
      ...(config.logs && { logs: config.logs }),
      ...(config.usual && { usual: selectSetup(config.usual) }),
      clusters: Object.fromEntries(clusters),
    },
  ];
};

/** Calls each member rule whose match fits the request, with the object as the earlier members changed it. */
const evaluateMembers =
  (members: Record<string, Rule>, evaluate: EvaluateRequest): EvaluateRequest =>
  async (_, phase, request, { settings, ...context }): Promise<RuleDecision> => {
    const patch: Patch = [];
    const warnings: string[] = [];
    const audit: Record<string, string> = {};
    const outcome: ReviewOutcome = { allowed: true, warnings, audit, patch };
    const results = new Map<string, GroupMemberDecision>();
    let { object } = request;

    const evaluateMember = async ([name, membership]: [string, GroupMemberConfig]): Promise<boolean | undefined> => {
      const { mode, settings, failsOpen, exempt } = membership;
      const rule = members[name];
      if (!rule) return false;
      const before = results.get(name) ?? { rule: name, mode, refused: false, operations: 0 };
      let decision: RuleDecision;
      try {
        const exceptions = POSTERN_EXCEPTIONS ? exempt.exceptions : undefined;
        decision = await evaluate(
          rule,
          phase,
          { ...request, object },
          { ...context, name, mode, settings, exceptions },
        );
      } catch (thrown) {
        const { code, message } = await explainFailure(thrown, request);
        const error = new Failure(code, `${name}: ${message}`, { cause: thrown });
        // A group goes on after the failure of a fail-open member, as the API server does with a webhook.
        if (!failsOpen || code < 500) throw error;
        results.set(name, { ...before, error });
        return false;
      }
      const { outcome: made, ...facts } = decision;
      const [refused, operations] = [before.refused || facts.refused, before.operations + facts.operations];
      results.set(name, { ...before, ...facts, refused, operations });
      const { status, ...own } = made;
      for (const warning of own.warnings ?? []) warnings.push(warning);
      for (const [key, value] of Object.entries(own.audit ?? {})) audit[`${name}.${key}`] = value;
      if (status) {
        outcome.allowed = false;
        outcome.status = { ...status, message: `${name}: ${status.message}` };
        return undefined;
      }
      for (const change of own.patch ?? []) patch.push(change);
      object = applyPatch(object, own.patch ?? []);
      return own.patch !== undefined;
    };
    const concerned = Object.entries(settings as Memberships).filter(([, membership]) =>
      concernsMember(membership, request),
    );
    // A group's member in mode warn or audit has reported everything in the first round, so only enforcing members
    // take part in the second.
    await callMutatorsInRounds(concerned, ([, { mode }]) => mode === "enforce", evaluateMember);
    const reported = [...results.values()].filter(
      ({ refused, operations, error, message, exception }) =>
        refused || operations > 0 || error || message || exception,
    );
    return { outcome, refused: !outcome.allowed, operations: patch.length, members: reported };
  };

const concernsMember = ({ mode, match, exempt }: GroupMemberConfig, request: AdmissionRequest): boolean => {
  const { namespaces = [], users = [], groups = [], resources = [] } = exempt;
  const { namespace = "", userInfo, resource, subResource = "" } = request;
  return (
    mode !== "off" &&
    match.some((row) => matchesRequest(row, request)) &&
    !namespaces.includes(namespace) &&
    !users.includes(userInfo.username ?? "") &&
    !userInfo.groups?.some((group) => groups.includes(group)) &&
    !resources.includes(toResourceKey(resource.group, `${resource.resource}/${subResource}`))
  );
};

/**
 * Returns a host that also writes a log line for each rule of the group that refused or failed, or from which an exception
 * exempts: so a denial counts in the metrics of the rule that denies.
 */
const logByMember = (host: EndpointHost): EndpointHost => ({
  ...host,
  writeLogLine(report) {
    host.writeLogLine(report);
    for (const member of report.members ?? [])
      if (member.refused || member.error || member.exception)
        host.writeLogLine({
          ...report,
          ...member,
          group: report.rule,
          code: member.error?.code ?? 200,
          members: undefined,
        });
  },
});
