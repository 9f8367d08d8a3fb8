import { findKeyFaults, findValueFaults, type Labels, type LengthUnit } from "postern/objects/label";

/** Parses `pool=default,disk=ssd`; returns kube-apiserver's error message if the text is invalid. */
export const parseSelector = (text: string, unit?: LengthUnit): Labels | string => {
  const labels: Record<string, string> = {};
  for (const pair of text === "" ? [] : text.split(",")) {
    const parts = pair.split("=");
    const [key = "", value = ""] = parts.map((part) => part.trim());
    if (parts.length !== 2) return `invalid selector: [${parts.join(" ")}]`;

    const [ofKey, ofValue] = [findKeyFaults(key, unit), findValueFaults(value, unit)].map((faults) =>
      faults.join("; "),
    );
    // Upstream validates a key without a field path, which Go prints as <nil>.
    if (ofKey) return `<nil>: Invalid value: ${JSON.stringify(key)}: ${ofKey}`;
    if (ofValue) return `[${key}]: Invalid value: ${JSON.stringify(value)}: ${ofValue}`;
    labels[key] = value;
  }
  return labels;
};
