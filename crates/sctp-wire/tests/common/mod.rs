//! What the tests share: writing a chunk from its parts.

use neater_sctp_wire::chunk::{
    Abort, Asconf, AsconfAck, Chunk, Error, ForwardTsn, IForwardTsn, Init, InitAck, NrSack, ReConfig, Sack,
};
use neater_sctp_wire::parameter::{ErrorIndication, Parameter};
use neater_sctp_wire::{Array, Cause, CommonHeader, Emit, Fixed, Item, List, PacketBuilder, Tag, WireError};

/// A chunk alone, with its padding, as it is written.
pub(crate) fn written(chunk: &impl Emit) -> Vec<u8> {
    let header = CommonHeader { source_port: 1, destination_port: 1, tag: Tag::ZERO };
    let mut buffer = vec![0xaa; 66_000];
    let mut packet = PacketBuilder::new(&mut buffer, header).unwrap();
    packet.push(chunk).unwrap();
    let len = packet.len();
    buffer[12..len].to_vec()
}

fn items<'a, T: Item<'a>>(list: List<'a, T>) -> Result<Vec<T>, WireError> {
    list.iter().collect()
}

fn all<T: Fixed>(array: Array<'_, T>) -> Vec<T> {
    array.iter().collect()
}

fn with_parameters<R>(
    list: List<'_, Parameter<'_>>,
    then: impl FnOnce(List<'_, Parameter<'_>>) -> R,
) -> Result<R, WireError> {
    // Causes within parameters are written from their parts, too.
    let mut parameters = items(list)?;
    let causes: Vec<Vec<Cause<'_>>> = parameters
        .iter()
        .map(|parameter| match parameter {
            Parameter::ErrorIndication(indication) => items(indication.causes),
            _ => Ok(Vec::new()),
        })
        .collect::<Result<_, _>>()?;
    for (parameter, causes) in parameters.iter_mut().zip(&causes) {
        if let Parameter::ErrorIndication(indication) = parameter {
            *parameter = ErrorIndication { correlation: indication.correlation, causes: List::new(causes) }.into();
        }
    }
    Ok(then(List::new(&parameters)))
}

/// The chunk written from the items of its lists, and not from the bytes that they came in.
///
/// # Errors
/// If an item cannot be read.
pub(crate) fn rewritten(chunk: &Chunk<'_>) -> Result<Vec<u8>, WireError> {
    match *chunk {
        Chunk::Init(init) => with_parameters(init.parameters, |parameters| written(&Init { parameters, ..init })),
        Chunk::InitAck(InitAck(init)) => {
            with_parameters(init.parameters, |parameters| written(&InitAck(Init { parameters, ..init })))
        }
        Chunk::ReConfig(chunk) => with_parameters(chunk.parameters, |parameters| written(&ReConfig { parameters })),
        Chunk::Asconf(chunk) => with_parameters(chunk.requests, |requests| written(&Asconf { requests, ..chunk })),
        Chunk::AsconfAck(chunk) => {
            with_parameters(chunk.responses, |responses| written(&AsconfAck { responses, ..chunk }))
        }
        Chunk::Abort(chunk) => Ok(written(&Abort { causes: List::new(&items(chunk.causes)?), ..chunk })),
        Chunk::Error(chunk) => Ok(written(&Error { causes: List::new(&items(chunk.causes)?) })),
        Chunk::Sack(chunk) => {
            let (gaps, duplicates) = (all(chunk.gaps), all(chunk.duplicates));
            Ok(written(&Sack { gaps: Array::new(&gaps), duplicates: Array::new(&duplicates), ..chunk }))
        }
        Chunk::NrSack(chunk) => {
            let (gaps, others, duplicates) = (all(chunk.gaps), all(chunk.non_renegable), all(chunk.duplicates));
            let non_renegable = Array::new(&others);
            Ok(written(&NrSack {
                gaps: Array::new(&gaps),
                non_renegable,
                duplicates: Array::new(&duplicates),
                ..chunk
            }))
        }
        Chunk::ForwardTsn(chunk) => {
            let skipped = all(chunk.skipped);
            Ok(written(&ForwardTsn { skipped: Array::new(&skipped), ..chunk }))
        }
        Chunk::IForwardTsn(chunk) => {
            let skipped = all(chunk.skipped);
            Ok(written(&IForwardTsn { skipped: Array::new(&skipped), ..chunk }))
        }
        other => Ok(written(&other)),
    }
}
