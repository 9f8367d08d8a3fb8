import { formatTable } from "../../infra/cli/command.ts";
import { prices } from "../../infra/rollout/plan/cost.ts";

// What the suite creates, and the most that it can cost. The numbers are limits that the suite keeps, not estimates.

export const limits = {
  /** Reviews that the suite sends, in both stages together. */
  reviews: 20_000,
  /** Minutes until the suite stops and destroys everything. */
  minutes: 120,
  /** The least minutes for which a run begins, and those that are kept for the destruction. */
  leastMinutes: 30,
  destroyMinutes: 20,
  /** Minutes for which one environment is kept warm. */
  warmMinutes: 15,
};

/** A month has 720 hours in CloudWatch's prices for metrics, alarms and dashboards, which are counted by the hour. */
const monthHours = 720;
/** An hour that has begun counts as a whole one. */
const hours = limits.minutes / 60 + 1;
const gigabytes = 0.25;
const timeoutSeconds = 11;
/** Of each review: a line of the function, a line of the gateway, and what an error adds. */
const loggedKilobytes = 4;

/** What both stages consist of; `type` is a type of CloudFormation. */
export const resources: { kind: string; number: number; type?: string }[] = [
  { kind: "CloudFormation stacks", number: 2 },
  { kind: "buckets", number: 2, type: "AWS::S3::Bucket" },
  { kind: "Lambda functions", number: 4, type: "AWS::Lambda::Function" },
  { kind: "roles", number: 4, type: "AWS::IAM::Role" },
  { kind: "HTTP APIs", number: 1, type: "AWS::ApiGatewayV2::Api" },
  { kind: "function URLs", number: 2, type: "AWS::Lambda::Url" },
  { kind: "log groups", number: 3, type: "AWS::Logs::LogGroup" },
  { kind: "alarms", number: 9, type: "AWS::CloudWatch::Alarm" },
  { kind: "dashboards", number: 2, type: "AWS::CloudWatch::Dashboard" },
  { kind: "saved queries", number: 10, type: "AWS::Logs::QueryDefinition" },
  { kind: "custom metrics", number: 11 },
  { kind: "parameters in SSM", number: 2 },
];

interface CostItem {
  what: string;
  dollars: number;
}

export const listCosts = (): CostItem[] => {
  const millions = limits.reviews / 1e6;
  const count = (name: string) => resources.find(({ kind }) => kind === name)?.number ?? 0;
  const perMonth = (dollars: number) => (dollars * hours) / monthHours;
  const warmSeconds = limits.warmMinutes * 60;
  return [
    { what: `${limits.reviews} requests to Lambda`, dollars: millions * prices.requests },
    {
      what: `${timeoutSeconds} s of compute for each of them`,
      dollars: millions * timeoutSeconds * gigabytes * prices.compute,
    },
    {
      what: `one warm environment for ${limits.warmMinutes} minutes`,
      dollars: (warmSeconds * gigabytes * prices.warm) / 1e6,
    },
    // A review of 4.5 MB counts as nine requests of 512 KB.
    { what: "the HTTP API", dollars: 2 * millions * prices.gateway[0] },
    { what: "logs", dollars: ((limits.reviews * loggedKilobytes) / 1e6) * prices.logs },
    { what: "metrics", dollars: perMonth(count("custom metrics") * prices.metric) },
    { what: "alarms, each of at most five metrics", dollars: perMonth(5 * count("alarms") * prices.alarm) },
    { what: "dashboards", dollars: perMonth(count("dashboards") * prices.dashboard) },
    {
      what: "probes and cases of commands, data out, requests to S3, CloudWatch and CloudFormation, queries of logs",
      dollars: 0.25,
    },
  ];
};

export const sumCosts = (): number => listCosts().reduce((sum, { dollars }) => sum + dollars, 0);

/** Describes what the suite will create and what it costs at most. */
export const describePlan = (name: string, region: string): string =>
  [
    `This creates the stages ${name} (HTTP API) and ${name}-url (function URLs) in ${region}, and destroys them at the end:\n`,
    formatTable(resources.map(({ kind, number }) => [`  ${number}`, kind])),
    `\nFor a moment there is also the stack postern-${name}-facts, with a log group, then with a role.`,
    `It sends at most ${limits.reviews} reviews, takes at most ${limits.minutes} minutes, and costs at most (prices of ${prices.region}, ${prices.date}):\n`,
    formatTable([
      ...listCosts().map(({ what, dollars }) => [`  $${dollars.toFixed(2)}`, what]),
      [`  $${sumCosts().toFixed(2)}`, "together"],
    ]),
  ].join("\n");
