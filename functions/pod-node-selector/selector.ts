import { findKeyFaults, findValueFaults, type Labels, type LengthUnit } from "postern/objects/label";

/** Parses `pool=default,disk=ssd`; returns kube-apiserver's error message if the text is invalid. */
export const parseSelector = (text: string, unit?: LengthUnit): Labels | string => {
  const labels: Record<string, string> = {};
  for (const pair of text === "" ? [] : text.split(",")) {
    const parts = pair.split("=");
    const [key = "", value = ""] = parts.map((part) => part.trim());
    if (parts.length !== 2) return `invalid selector: [${parts.join(" ")}]`;
    const keyFault = findKeyFaults(key, unit).join("; ");
    const valueFault = findValueFaults(value, unit).join("; ");
    // Upstream validates the key without a field path. Go prints the missing path as <nil>.
    if (keyFault) return `<nil>: Invalid value: ${JSON.stringify(key)}: ${keyFault}`;
    if (valueFault) return `[${key}]: Invalid value: ${JSON.stringify(value)}: ${valueFault}`;
    labels[key] = value;
  }
  return labels;
};
