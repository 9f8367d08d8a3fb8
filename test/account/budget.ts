import { formatTable } from "../../infra/cli/command.ts";
import { prices } from "../../infra/rollout/plan/cost.ts";

// The resources that the suite creates, and its largest possible cost. The numbers are limits that the suite enforces,
// and not estimates.

export const limits = {
  /** The maximum number of reviews that the suite sends to both stages together. */
  reviews: 20_000,
  /** Minutes until the suite stops and destroys everything. */
  minutes: 120,
  /** A run starts only if it can take at least this number of minutes before its credentials end. */
  leastMinutes: 30,
  /** The minutes that are reserved for the destruction of the stages. */
  destroyMinutes: 20,
  /** Minutes for which one environment is provisioned. */
  warmMinutes: 15,
};

/** A month has 720 hours in CloudWatch's prices for metrics, alarms and dashboards, which are counted by the hour. */
const monthHours = 720;
/** The hours that are paid for. AWS counts a started hour as a whole one. */
const hours = limits.minutes / 60 + 1;
/** The memory of a function. */
const gigabytes = 0.25;
/** The longest time of a review in a function. */
const timeoutSeconds = 11;
/**
 * The kilobytes that each review logs at most: a line of the function, a line of the gateway, and lines of an error.
 */
const loggedKilobytes = 4;

/** The resources of both stages together. `type` is the type in CloudFormation. */
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

/** Lists the costs. Prices are for a million requests or gigabyte-seconds, or for a gigabyte of logs. */
export const listCosts = (): CostItem[] => {
  const millionReviews = limits.reviews / 1e6;
  const count = (name: string) => resources.find(({ kind }) => kind === name)?.number ?? 0;
  const perMonth = (dollars: number) => (dollars * hours) / monthHours;
  const millionWarmSeconds = (limits.warmMinutes * 60) / 1e6;
  const loggedGigabytes = (limits.reviews * loggedKilobytes) / 1e6;
  const [priceOfFirstRequests] = prices.gateway;
  return [
    { what: `${limits.reviews} requests to Lambda`, dollars: millionReviews * prices.requests },
    {
      what: `${timeoutSeconds} s of compute for each of them`,
      dollars: millionReviews * timeoutSeconds * gigabytes * prices.compute,
    },
    {
      what: `one warm environment for ${limits.warmMinutes} minutes`,
      dollars: millionWarmSeconds * gigabytes * prices.warm,
    },
    // A review of 4.5 MB counts as nine requests of 512 KB, almost all others as one: on average as less than two.
    { what: "the HTTP API", dollars: 2 * millionReviews * priceOfFirstRequests },
    { what: "logs", dollars: loggedGigabytes * prices.logs },
    { what: "metrics", dollars: perMonth(count("custom metrics") * prices.metric) },
    { what: "alarms, each of at most five metrics", dollars: perMonth(5 * count("alarms") * prices.alarm) },
    { what: "dashboards", dollars: perMonth(count("dashboards") * prices.dashboard) },
    {
      // Commands of Postern invoke functions with probes and with the rules' cases. Data out is traffic from AWS.
      what: "probes and cases of commands, data out, requests to S3, CloudWatch and CloudFormation, queries of logs",
      dollars: 0.25,
    },
  ];
};

export const sumCosts = (): number => listCosts().reduce((sum, { dollars }) => sum + dollars, 0);

/** Describes what the suite creates and costs at most. The stack -facts is made twice: for a log group, for a role. */
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
