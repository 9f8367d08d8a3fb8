// Endpoints with all the code that some rules need, for everything but bundles: serve, check, replay and tests.
import { evaluateInTime } from "./deadline.ts";
import {
  createEndpoint,
  type EndpointConfig,
  type EndpointHostInputs,
  type OptionalEndpointFunctions,
} from "./endpoint.ts";
import { evaluateRule } from "./evaluation.ts";
import { exactJson } from "./exact-json.ts";
import { createGroupEndpoint, type GroupConfig } from "./group.ts";
import { createCapabilitiesFromRecord } from "./recorded-answers.ts";
import type { Rule } from "./rule.ts";
import { findVariantSettings } from "./settings.ts";

const parts: OptionalEndpointFunctions = {
  findVariantSettings,
  evaluateInTime,
  createCapabilitiesFromRecord,
  exactJson,
};

/** Creates an endpoint for any rule. If reviews are recorded, `evaluate` is the function that records them, too. */
export const createEndpointForAnyRule = (
  rule: Rule,
  config: EndpointConfig,
  host?: EndpointHostInputs,
  evaluate = evaluateRule,
) => createEndpoint(rule, config, evaluate, host, parts);

/** Creates an endpoint for any group of rules, with the parts that only some rules need. */
export const createEndpointForAnyGroup = (
  members: Record<string, Rule>,
  config: GroupConfig,
  host?: EndpointHostInputs,
  evaluate = evaluateRule,
) => createGroupEndpoint(members, config, evaluate, host, parts);
